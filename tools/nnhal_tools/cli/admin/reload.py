"""`nnhal reload`: have a service on this machine read its settings and its plug-ins again."""

from typing import Annotated

import typer

from nnhal_tools.cli.admin.connection import StateDirectory, connected
from nnhal_tools.cli.errors import reporting_errors
from nnhal_tools.cli.security_options import with_security


@with_security
@reporting_errors()
def reload(
    address: Annotated[
        str, typer.Argument(metavar="[ADDR]", help="An address of the service. Needed if several services run.")
    ] = "",
    state_dir: StateDirectory = None,
) -> None:
    """Replace the workers of a service one by one, with the current settings and plug-ins. No call fails.

    The service logs `reloaded` when the last worker is replaced. Addresses and the number of workers stay.
    """
    with connected(address or None, state_dir) as service:
        typer.echo(service.call("Reload").result)
