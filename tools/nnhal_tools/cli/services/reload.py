"""`nnhal reload`: have a service on this machine read its settings and its plug-ins again."""

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from nnhal_tools.cli.errors import FAILED, CommandError, reporting_errors
from nnhal_tools.cli.services.service_settings import service_settings


@reporting_errors()
def reload(
    address: Annotated[
        str, typer.Argument(metavar="[ADDR]", help="An address of the service. Needed if several services run.")
    ] = "",
    state_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="State directory of the service. Default: as for `nnhal serve`.")
    ] = None,
) -> None:
    """Replace the workers of a service one by one, with the current settings and plug-ins. No call fails.

    The service logs `reloaded` when the last worker is replaced. Addresses and the number of workers stay.
    """
    state_directory = service_settings(state_dir=state_dir).state_dir
    from nnhal_service.running_services import running_services

    found = running_services(state_directory)
    chosen = [service for service in found if not address or address in service.addresses]
    if len(chosen) != 1:
        running = ", ".join("/".join(service.addresses) for service in found) or "none"
        problem = (
            "several services run; name one" if chosen else f"no service runs {f'at {address}' if address else ''}"
        )
        raise CommandError(f"{problem.strip()}. Running: {running}", FAILED)
    os.kill(chosen[0].pid, signal.SIGHUP)
    typer.echo(f"the service at {', '.join(chosen[0].addresses)} reloads (process {chosen[0].pid})")
