"""`nnhal delegate`: find and try `libnnhal_delegate.so`, with which LiteRT programs use devices of nnhal."""

from typing import Annotated

import typer

from nnhal_tools.cli.errors import FAILED, MISUSED, CommandError, as_command_errors

delegate = typer.Typer(
    help="Find and try libnnhal_delegate.so, with which LiteRT programs use devices of nnhal.",
    no_args_is_help=True,
)


@delegate.command()
def path() -> None:
    """Print the path of the library, which is built if there is none yet."""
    from nnhal_delegate.build import find_or_build_delegate
    from nnhal_ndk.build import BuildError

    with as_command_errors(BuildError, exit_code=FAILED):
        typer.echo(find_or_build_delegate())


@delegate.command()
def check(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the delegate.")
    ] = None,
) -> None:
    """Run a small model in LiteRT with the library, and show times: `nnhal delegate check target=unix:/run/nnhal.sock`.

    The exit code is 1 if something does not work.
    """
    from nnhal.errors import HalError
    from nnhal_delegate.build import find_or_build_delegate
    from nnhal_delegate.check import check
    from nnhal_ndk.build import BuildError

    given = {}
    for text in options or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise CommandError(f"invalid option {text!r}; expected NAME=VALUE", MISUSED)
        given[name] = value
    with as_command_errors(BuildError, HalError, ImportError, exit_code=FAILED):
        for line in check(find_or_build_delegate(), given):
            typer.echo(line)
