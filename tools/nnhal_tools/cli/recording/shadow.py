"""`nnhal shadow`: start and stop the repetition of executions on the shadow of a running service."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.admin.connection import Service, act, snapshot_command
from nnhal_tools.cli.console import print_text, printable
from nnhal_tools.cli.options import StateDirectory
from nnhal_tools.cli.recording.rules import Devices, Identities, Models, describe_rules
from nnhal_tools.cli.security_options import client_command

if TYPE_CHECKING:
    from rich.console import Console

shadow = typer.Typer(
    help="Repeat executions of a running service elsewhere, and compare them. The service was started with --shadow "
    "(docs/recording.md). `nnhal top` shows the drift of each model.",
    no_args_is_help=True,
)


@client_command(shadow)
def start(
    share: Annotated[float, typer.Option(metavar="SHARE", help="Part of the executions to repeat.")] = 0.1,
    identity: Identities = None,
    model: Models = None,
    device: Devices = None,
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Repeat executions from now on, of all workers, until the next start or reload of the service."""
    act(target, state_dir, "SetShadow", share=share, identities=identity, models=model, devices=device)


@client_command(shadow)
def stop(target: Service = None, state_dir: StateDirectory = None) -> None:
    """Repeat no more executions."""
    act(target, state_dir, "SetShadow", share=0)


@snapshot_command(shadow, "shadow")
def status(console: "Console", snapshot: dict[str, Any]) -> None:
    """Show which executions are repeated, and where."""
    found = snapshot["shadow"]
    if not found["target"]:
        print_text(console, "the service has no shadow; start it with --shadow TARGET or --shadow BACKENDS")
    else:
        print_text(console, printable(describe_rules("repeats", found, "on", found["target"])))
