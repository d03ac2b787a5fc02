"""Connection to the administration of a service."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from nnhal.admin.plain import to_plain
from nnhal.errors import LinuxRequiredError
from nnhal_tools.cli.console import make_console, print_json
from nnhal_tools.cli.errors import FAILED, CommandError
from nnhal_tools.cli.options import Json, StateDirectory, parse_target
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.cli.services.service_settings import service_settings

if TYPE_CHECKING:
    from rich.console import Console

    from nnhal.admin.v1.admin_pb2_grpc import AdminStub

TIMEOUT_S = 20.0
"""Seconds that the service may take for an answer. One whose workers hang takes some."""
_MAX_BYTES = 2**26

Service: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--target",
        parser=parse_target,
        metavar="ADDR",
        help="An address of the service, or that of its administration. Needed if several services run.",
    ),
]
Worker: TypeAlias = Annotated[int | None, typer.Option("--worker", metavar="N", help="This worker only. Default: all.")]
Show: TypeAlias = "Callable[[Console, dict[str, Any]], None]"
"""Function that prints a snapshot of a service."""


class AdminConnection:
    """Connection to one service."""

    def __init__(self, address: str, stub: "AdminStub") -> None:
        self.address = address
        self._stub = stub

    def call(self, method: str, **fields: object) -> Any:
        """Call a method of the service, with the fields of its request, and return the response.

        Raises:
            CommandError: the service refuses it, or does not answer.
        """
        import grpc

        from nnhal.admin.v1 import admin_pb2

        request = getattr(admin_pb2, f"{method}Request")(
            **{name: value for name, value in fields.items() if value is not None}
        )
        stub: Callable[..., Any] = getattr(self._stub, method)
        try:
            return stub(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise CommandError(_reason(error, self.address), FAILED) from None

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the service."""
        return to_plain(self.call("GetSnapshot").snapshot)


@contextmanager
def connected(target: str | None, state_dir: Path | None) -> Iterator[AdminConnection]:
    """Connect to the service that the options of a command name. There must be one."""
    from nnhal.admin.v1 import admin_pb2_grpc
    from nnhal.client.security.options import NO_OPTIONS
    from nnhal.client.security.security import secured

    address = find_admin(target, state_dir)
    options = [("grpc.max_receive_message_length", _MAX_BYTES)]
    plain_address, security = secured(address, NO_OPTIONS)
    with closing(security.channel(plain_address or address, options)) as channel:
        yield AdminConnection(address, admin_pb2_grpc.AdminStub(channel))


def act(target: str | None, state_dir: Path | None, method: str, **fields: object) -> None:
    """Call a method that changes a service, and print its result."""
    with connected(target, state_dir) as service:
        typer.echo(service.call(method, **fields).result)


def snapshot_command(group: typer.Typer, part: str = "") -> Callable[[Show], Show]:
    """Add a command that prints the state of a service: what a function shows of it, or a part of it as JSON.

    The command has the name and the docstring of the function. `part`: "" for all of the state.
    """

    def register(show: Show) -> Show:
        def command(target: Service = None, state_dir: StateDirectory = None, as_json: Json = False) -> None:
            with connected(target, state_dir) as service:
                snapshot = service.snapshot()
            if as_json:
                print_json(snapshot[part] if part else snapshot)
            else:
                show(make_console(), snapshot)

        group.command(show.__name__, help=show.__doc__)(with_security(command))
        return show

    return register


def find_admin(target: str | None, state_dir: Path | None) -> str:
    """Return the address of the administration of a service.

    Raises:
        CommandError: no service runs, several do, or it has no administration.
    """
    try:
        folder = service_settings(state_dir=state_dir).state_dir
    except LinuxRequiredError:
        if target is None:
            raise
        return target  # services run on other machines
    from nnhal_service.operating.running_services import running_services

    found = running_services(folder)
    chosen = [service for service in found if target in (None, service.admin, *service.addresses)]
    if not chosen and target is not None:
        return target  # of a service on another machine, or with another state directory
    if len(chosen) != 1:
        running = ", ".join("/".join(service.addresses) for service in found) or "none"
        problem = "several services run; name one with --target" if chosen else "no service runs"
        raise CommandError(f"{problem}. Running: {running}", FAILED)
    if not chosen[0].admin:
        raise CommandError(f"the service at {chosen[0].addresses[0]} has no administration; see --admin-listen", FAILED)
    return chosen[0].admin


def _reason(error: Any, address: str) -> str:
    """Return the text of an error of gRPC."""
    import grpc

    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return f"no response from {address}: {error.details()}"
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return f"{address} is not the address of an administration; see --admin-listen"
    return str(error.details() or error.code().name)
