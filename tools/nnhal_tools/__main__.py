"""Entry point of the command line: `nnhal`, `python -m nnhal` and `python -m nnhal_tools`.

The command line needs typer, which the client does not install. Without it, this module prints the version, or names
the missing extra.
"""

import signal
import sys
from importlib.util import find_spec

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell."""
_MISUSED = 2
"""Exit code. `nnhal_tools.cli.errors`, which defines it, imports typer."""


def main() -> None:
    """Run the command line."""
    try:
        if find_spec("typer") is None:
            sys.exit(_run_without_typer(sys.argv[1:]))
        from nnhal_tools.cli import main as run_command_line

        run_command_line()
    except KeyboardInterrupt:  # during the imports, or while a command reports something
        print("nnhal: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        # all work is done or given up: Ctrl-C while the interpreter exits ends it, instead of printing a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_without_typer(arguments: list[str]) -> int:
    """Print the version, or the extra that the command needs, and return the exit code."""
    from nnhal.errors import LinuxRequiredError, require_linux
    from nnhal.version import describe_version
    from nnhal_tools.extras import missing_extra_text

    if arguments[:1] == ["--version"]:
        print(f"nnhal {describe_version()}")
        return 0
    problem = missing_extra_text("cli")
    if arguments[:1] == ["serve"]:
        try:
            require_linux("`nnhal serve`")
            problem = missing_extra_text("server")
        except LinuxRequiredError as error:
            problem = error.reason
    print(f"nnhal: {problem}", file=sys.stderr)
    return _MISUSED


if __name__ == "__main__":
    main()
