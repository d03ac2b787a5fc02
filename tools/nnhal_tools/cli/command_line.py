"""The group of all commands: runs one, and reports every failure as one line on stderr."""

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from typer.core import TyperGroup

from nnhal.errors import HalError, LinuxRequiredError
from nnhal_tools.cli.errors import FAILED, INTERRUPTED, MISUSED, CommandError, print_error
from nnhal_tools.extras import missing_extra, missing_extra_text


class CommandLine(TyperGroup):
    """Group of commands, each of whose errors is one line and an exit code."""

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
        main = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)

        def run() -> Any:
            _hide_types_of_flags(self, sys.argv[1:] if args is None else args)
            return main()

        if not standalone_mode:
            return run()
        try:
            code = _run_reporting_errors(run)
            if code == INTERRUPTED:  # by typer
                print_error("interrupted")
            sys.stdout.flush()  # while errors of the last lines can still be reported
        except OSError as error:
            code = _report_os_error(error)
        sys.exit(code if isinstance(code, int) else 0)


def _hide_types_of_flags(command: Any, words: Sequence[str], parent: Any = None) -> None:
    """Leave out "<bool>" in the help of options without a value: newer versions of typer show it.

    Of the group and of the commands that the words name. The options of others may not be loaded.
    """
    context = command.context_class(command, parent=parent, **command.context_settings)
    for param in command.get_params(context):
        if getattr(param, "is_flag", False):
            param.metavar = ""
    for each in getattr(command, "commands", {}).keys() & set(words):
        _hide_types_of_flags(command.commands[each], words, context)


def _run_reporting_errors(run: Callable[[], Any]) -> Any:
    """Run a command and return its result, or the exit code of an error."""
    try:
        return run()
    except CommandError as error:
        return print_error(str(error), error.exit_code)
    except LinuxRequiredError as error:
        return print_error(error.reason, MISUSED)
    except HalError as error:
        return print_error(str(error), FAILED)
    except ImportError as error:
        if extra := missing_extra(error):
            return print_error(missing_extra_text(extra), MISUSED)
        raise
    except Exception as error:
        # typer's own classes; older versions have those of click, so they have no common module
        if hasattr(error, "format_message"):
            return _report_usage_error(error)
        raise


def _report_os_error(error: OSError) -> int:
    """Report an error of the operating system that no command expects, for example a full disk."""
    # whatever is left in the buffer cannot be written either, and the interpreter would complain about it at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # as with `nnhal info | head -1`
        return FAILED
    subject = error.filename or ("cannot write the output" if error.errno == errno.ENOSPC else "")
    return print_error(": ".join(filter(None, (subject, error.strerror or str(error)))), FAILED)


def _report_usage_error(error: Any) -> int:
    """Report an error that typer found in the arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
        return MISUSED
    path = error.ctx.command_path if getattr(error, "ctx", None) else "nnhal"
    return print_error(f"{_usage_text(error)}; see `{path} --help`", MISUSED)


def _usage_text(error: Any) -> str:
    parameter = getattr(error, "param", None)
    if parameter is None or type(error).__name__ == "MissingParameter":
        text: str = error.format_message()
        text = re.sub(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected argument: \1", text)
        text = re.sub(r" \(Possible options: (.*)\)$", r"; did you mean \1?", text)
        return text[:1].lower() + text[1:].rstrip(".")
    names = [name for name in parameter.opts if name.startswith("--")] or [parameter.human_readable_name]
    return f"{names[0]}: {error.message.removeprefix('Value error, ').rstrip('.')}"
