"""`nnhal ndk`: build and find `libneuralnetworks.so`, with which NNAPI programs use devices of nnhal."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from nnhal_tools.cli.errors import FAILED, as_command_errors

ndk = typer.Typer(
    help="Build and find libneuralnetworks.so, with which NNAPI programs use devices of nnhal.",
    no_args_is_help=True,
)

Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for the library. [default: a cache]")
]


def _reporting_build_errors() -> AbstractContextManager[None]:
    from nnhal_ndk.build import BuildError

    return as_command_errors(BuildError, exit_code=FAILED)


@ndk.command()
def build(output: Output = None) -> None:
    """Build the library for this Python environment, and print its path."""
    from nnhal_ndk.build import build, python_library

    with _reporting_build_errors():
        typer.echo(build(output))
    if python_library() is None:
        typer.echo("nnhal: this Python has no shared library, so only Python programs can use nnhal", err=True)


@ndk.command()
def path(
    include: Annotated[bool, typer.Option("--include", help="Print the folder of the header instead.")] = False,
) -> None:
    """Print the path of the library, which is built if there is none yet."""
    from nnhal_ndk.build import find_or_build, include_folder

    with _reporting_build_errors():
        typer.echo(include_folder() if include else find_or_build())


@ndk.command()
def env() -> None:
    """Print the shell command that lets programs find the library: `eval "$(nnhal ndk env)"`."""
    import shlex

    from nnhal_ndk.build import find_or_build

    with _reporting_build_errors():
        folder = shlex.quote(str(find_or_build().parent))
    typer.echo(f'export LD_LIBRARY_PATH={folder}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')


@ndk.command()
def check() -> None:
    """Compile a small C program, run it with the library, and show devices, results and times.

    The exit code is 1 if something does not work.
    """
    from nnhal_ndk.build import run_check

    with _reporting_build_errors():
        output = run_check()
    typer.echo(output.rstrip())
