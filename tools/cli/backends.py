"""`nnhal backends`: what a device found, and why it does not use it; `nnhal backends doctor`, `nnhal new-backend`.

What concerns a plug-in itself is the driver's business, and is run as a process of its own.
"""

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.console import make_console
from tools.cli.errors import CommandError, reporting_errors
from tools.cli.options import CONNECT_S, Target

backends = typer.Typer(help="Show the backends of a device, and examine plug-ins.", invoke_without_command=True)


class Language(StrEnum):
    """What a backend is written in."""

    PYTHON = "python"
    C = "c"


@backends.callback()
@reporting_errors()
def list_backends(
    context: typer.Context,
    target: Target = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Which device of the service.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every candidate for a backend that a device found: ready, skipped or failed, from where, and why.

    The exit code is 1 when one has failed.
    """
    if context.invoked_subcommand is not None:
        return
    import json

    import nnhal

    with nnhal.connect(target, device=device, timeout=CONNECT_S) as connected:
        rows = [_row(backend) for backend in connected.backends()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        _show(rows)
    if any(row["state"] == "failed" for row in rows):
        raise typer.Exit(1)


@backends.command()
@reporting_errors()
def doctor(file: Annotated[Path, typer.Argument(metavar="FILE", help="A .so or .py.")]) -> None:
    """Load a plug-in in a process of its own, and show what it has against what this host offers.

    The exit code is 1 when a service would not use it.
    """
    if not file.is_file():
        raise CommandError(f"{file} is not a file")
    ended = subprocess.run([sys.executable, "-P", "-m", "driver.backends.doctor", str(file.absolute())], check=False)
    raise typer.Exit(ended.returncode)


@reporting_errors()
def new_backend(
    vendor: Annotated[str, typer.Argument(help="Letters and digits.")],
    name: Annotated[str, typer.Argument(help="Letters and digits; it becomes the backend's id.")],
    lang: Annotated[Language, typer.Option(help="What to write it in.")] = Language.PYTHON,
    folder: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to. Default: VENDOR_NAME, here.")] = None,
) -> None:
    """Write a backend that works, with its tests: a start for your own."""
    where = folder or Path(f"{vendor}_{name}")
    command = [sys.executable, "-P", "-m", "driver.backends.skeleton", vendor, name, lang.value, str(where)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise CommandError(ended.stderr)
    typer.echo(ended.stdout, nl=False)
    build = "make && " if lang is Language.C else ""
    typer.echo(f"next: cd {where} && {build}nnhal backends doctor {_plugin(vendor, name, lang)} && pytest")


def _plugin(vendor: str, name: str, lang: Language) -> str:
    return f"{vendor}_{name}_backend.{'so' if lang is Language.C else 'py'}"


def _row(backend: object) -> dict[str, object]:
    from nnhal.v1 import device_pb2

    assert isinstance(backend, device_pb2.BackendInfo)
    return {
        "id": backend.id,
        "version": backend.version,
        "state": device_pb2.BackendState.Name(backend.state).removeprefix("BACKEND_STATE_").lower(),
        "reason": backend.reason,
        "origin": backend.origin,
        "interface": backend.api_version,
        "capabilities": dict(backend.capabilities),
    }


def _show(rows: list[dict[str, object]]) -> None:
    """A line for each: paths and reasons are too long for a table."""
    console = make_console()
    for row in rows:
        name = f"{row['id'] or '(no id)'} {row['version']}".strip()
        interface = f", interface {row['interface']}" if row["interface"] else ""
        reason = f": {row['reason']}" if row["reason"] else ""
        console.print(f"{row['state']:8} {name:12} {row['origin']}{interface}{reason}", soft_wrap=True)
