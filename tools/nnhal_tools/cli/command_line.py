"""The group of all commands: runs one, and reports every failure as one line on stderr."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from typer.core import TyperGroup

from nnhal_tools.cli.errors import FAILED, MISUSED, print_error


class CommandLine(TyperGroup):
    """Group of commands whose usage errors are one line, like all other errors."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit, or return its result if `standalone_mode` is False."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            code = run()
            sys.stdout.flush()  # while errors of the last lines can still be reported
        except OSError as error:
            code = _report_os_error(error)
        except Exception as error:
            # typer's own classes; older versions have those of click, so they have no common module
            if not hasattr(error, "format_message"):
                raise
            code = _report_usage_error(error)
        sys.exit(code if isinstance(code, int) else 0)


def _report_os_error(error: OSError) -> int:
    """Report an error of the operating system that no command expects, for example a full disk."""
    # whatever is left in the buffer cannot be written either, and the interpreter would complain about it at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # as with `nnhal info | head -1`
        subject = error.filename or ("cannot write the output" if error.errno == errno.ENOSPC else "")
        print_error(": ".join(filter(None, (subject, error.strerror or str(error)))))
    return FAILED


def _report_usage_error(error: Any) -> int:
    """Report an error that typer found in the arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
        return MISUSED
    path = error.ctx.command_path if getattr(error, "ctx", None) else "nnhal"
    print_error(f"{_usage_text(error)}; see `{path} --help`")
    return MISUSED


def _usage_text(error: Any) -> str:
    parameter = getattr(error, "param", None)
    if parameter is None or type(error).__name__ == "MissingParameter":
        text: str = error.format_message()
        text = re.sub(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected argument: \1", text)
        text = re.sub(r" \(Possible options: (.*)\)$", r"; did you mean \1?", text)
        return text[:1].lower() + text[1:].rstrip(".")
    names = [name for name in parameter.opts if name.startswith("--")] or [parameter.human_readable_name]
    return f"{names[0]}: {error.message.removeprefix('Value error, ').rstrip('.')}"
