"""`nnhal shadow`: start and stop the repetition of executions on the shadow of a running service."""

from typing import TYPE_CHECKING, Annotated

import typer

from nnhal_tools.cli.admin.connection import Service, StateDirectory, connected
from nnhal_tools.cli.console import make_console, print_json, print_text, printable
from nnhal_tools.cli.options import Json
from nnhal_tools.cli.recording.rules import Devices, Identities, Models, describe_rules
from nnhal_tools.cli.security_options import with_security

if TYPE_CHECKING:
    from collections.abc import Callable

shadow = typer.Typer(
    help="Repeat executions of a running service elsewhere, and compare them. The service was started with --shadow "
    "(docs/recording.md). `nnhal top` shows the drift of each model.",
    no_args_is_help=True,
)


def shadow_command(function: "Callable[..., None]") -> "Callable[..., None]":
    """Add a command to the group, with the options of clients."""
    return shadow.command()(with_security(function))


@shadow_command
def start(
    share: Annotated[float, typer.Option(metavar="SHARE", help="Part of the executions to repeat.")] = 0.1,
    identity: Identities = None,
    model: Models = None,
    device: Devices = None,
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Repeat executions from now on, of all workers, until the next start or reload of the service."""
    with connected(target, state_dir) as service:
        response = service.call("SetShadow", share=share, identities=identity, models=model, devices=device)
        typer.echo(response.result)


@shadow_command
def stop(target: Service = None, state_dir: StateDirectory = None) -> None:
    """Repeat no more executions."""
    with connected(target, state_dir) as service:
        typer.echo(service.call("SetShadow", share=0).result)


@shadow_command
def status(target: Service = None, state_dir: StateDirectory = None, as_json: Json = False) -> None:
    """Show which executions are repeated, and where."""
    with connected(target, state_dir) as service:
        found = service.snapshot()["shadow"]
    if as_json:
        print_json(found)
    elif not found["target"]:
        print_text(make_console(), "the service has no shadow; start it with --shadow TARGET or --shadow BACKENDS")
    else:
        print_text(make_console(), printable(describe_rules("repeats", found, "on", found["target"])))
