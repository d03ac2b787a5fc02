"""`nnhal record`: start and stop the recording of executions, and make test vectors of records."""

from typing import TYPE_CHECKING, Annotated

import typer

from nnhal_tools.cli.admin.connection import Service, StateDirectory, connected
from nnhal_tools.cli.console import format_bytes, make_console, print_json, print_text
from nnhal_tools.cli.options import Json
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.tables import counted

if TYPE_CHECKING:
    from collections.abc import Callable

record = typer.Typer(
    help="Record executions of a running service, which was started with --record FOLDER (docs/recording.md). "
    "`nnhal replay` repeats them on another device.",
    no_args_is_help=True,
)


def record_command(function: "Callable[..., None]") -> "Callable[..., None]":
    """Add a command to the group, with the options of clients."""
    return record.command()(with_security(function))


@record_command
def start(
    share: Annotated[float, typer.Option(metavar="SHARE", help="Part of the executions to record.")] = 0.01,
    identity: Annotated[
        list[str] | None, typer.Option(metavar="IDENTITY", help="Executions of this identity only. Repeat it for more.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="DIGEST", help="Executions of the model whose digest starts like this.")
    ] = None,
    device: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Executions on this device only.")] = None,
    values: Annotated[
        bool, typer.Option("--values/--no-values", help="Record values, and not only shapes, times and digests.")
    ] = True,
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Record executions from now on, in all workers, until the next start or reload of the service."""
    rules = {"share": share, "identities": identity, "models": model, "devices": device, "without_values": not values}
    with connected(target, state_dir) as service:
        typer.echo(service.call("SetRecording", **rules).result)


@record_command
def stop(target: Service = None, state_dir: StateDirectory = None) -> None:
    """Record no more. The archives are complete then."""
    with connected(target, state_dir) as service:
        typer.echo(service.call("SetRecording", share=0).result)


@record_command
def status(target: Service = None, state_dir: StateDirectory = None, as_json: Json = False) -> None:
    """Show what is recorded, and how much the running workers have written."""
    with connected(target, state_dir) as service:
        found = service.snapshot()["recording"]
    if as_json:
        print_json(found)
        return
    console = make_console()
    if not found["folder"]:
        print_text(console, "the service has no folder for recordings; start it with --record FOLDER")
        return
    lists = {"identities": "identity", "models": "model", "devices": "device"}
    chosen = [f"{lists[name]} {', '.join(found[name])}" for name in lists if found[name]]
    values = "with values" if found["values"] else "without values"
    what = f"records {found['share']:.4g} of the executions {values}" if found["share"] else "records nothing"
    print_text(console, "; ".join([what, *chosen]))
    lost = f"; {found['lost']} lost" if found["lost"] else ""
    print_text(
        console, f"{counted(found['records'], 'record')}, {format_bytes(found['bytes'])} to {found['folder']}{lost}"
    )
