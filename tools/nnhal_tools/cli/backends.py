"""`nnhal backends`: the backends of a device. Also `nnhal backends doctor` and `nnhal new-backend`, for plug-ins.

The commands for plug-ins run modules of the driver in a separate process: see the import contracts in pyproject.toml.
"""

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnhal.errors import require_linux
from nnhal_tools.cli.console import make_console, print_json, print_text, show_connecting
from nnhal_tools.cli.errors import CommandError
from nnhal_tools.cli.options import CONNECT_S, DeviceName, Json, Target
from nnhal_tools.cli.security_options import with_security

if TYPE_CHECKING:
    from nnhal.types import BackendInfo

_RUN_MODULE = (sys.executable, "-P", "-m")

backends = typer.Typer(help="Show the backends of a device, and examine plug-ins.", invoke_without_command=True)


class Language(StrEnum):
    """Languages that backends are written in."""

    PYTHON = "python"
    C = "c"


@backends.callback()
@with_security
def list_backends(
    context: typer.Context,
    target: Target = None,
    device: DeviceName = "",
    as_json: Json = False,
) -> None:
    """Show each backend that a device found: whether it is ready, skipped or failed, where it came from, and why.

    The exit code is 1 if a backend has failed.
    """
    if context.invoked_subcommand is not None:
        return
    import nnhal

    with show_connecting(target), nnhal.connect(target, device=device, timeout=CONNECT_S) as connected:
        rows = [_to_row(backend) for backend in connected.backends()]
    if as_json:
        print_json(rows)
    else:
        _show(rows)
    if any(row["state"] == "failed" for row in rows):
        raise typer.Exit(1)


@backends.command()
def doctor(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .so or .py file.")],
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option for its factory. May be repeated.")
    ] = None,
) -> None:
    """Load a plug-in in a process of its own, compare it with what this host supports, and try its operations.

    The exit code is 1 if a service would not use it, or if a method raises or gives an answer that cannot be true.
    """
    require_linux("`nnhal backends doctor`")
    if not file.is_file():
        raise CommandError(f"{file} is not a file")
    command = [*_RUN_MODULE, "nnhal_driver.backends.plugins.doctor", str(file.absolute()), *(option or [])]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def new_backend(
    vendor: Annotated[str, typer.Argument(help="Letters and digits.")],
    name: Annotated[str, typer.Argument(help="Letters and digits. Becomes the id of the backend.")],
    lang: Annotated[Language, typer.Option(help="The language to write it in.")] = Language.PYTHON,
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder to create. Default: VENDOR_NAME.")
    ] = None,
) -> None:
    """Create a working backend with its tests, package and CI, as a start for your own."""
    path = folder or Path(f"{vendor}_{name}")
    command = [*_RUN_MODULE, "nnhal_driver.backends.plugins.skeleton", vendor, name, lang.value, str(path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise CommandError(result.stderr)
    typer.echo(result.stdout, nl=False)
    editable, test = ("", "make test") if lang is Language.C else ("--editable ", "pytest")
    typer.echo(f"next: cd {path} && pip install {editable}'.[test]' && {test}")


def _to_row(backend: "BackendInfo") -> dict[str, object]:
    return {
        "id": backend.id,
        "version": backend.version,
        "state": backend.state.name.lower(),
        "reason": backend.reason,
        "origin": backend.origin,
        "interface": backend.api_version,
        "capabilities": dict(backend.capabilities),
    }


def _show(rows: list[dict[str, object]]) -> None:
    """Print one line per backend: paths and reasons are too long for a table."""
    console = make_console()
    for row in rows:
        name = f"{row['id'] or '(no id)'} {row['version']}".strip()
        interface = f", interface {row['interface']}" if row["interface"] else ""
        reason = f": {row['reason']}" if row["reason"] else ""
        print_text(console, f"{row['state']:8} {name:12} {row['origin']}{interface}{reason}")
