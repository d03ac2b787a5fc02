"""`nnhal fleet`: start a fleet on a cluster of Ray, see its members, and take them out of use."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from nnhal_tools.cli.admin.connection import StateDirectory
from nnhal_tools.cli.admin.units import counted, format_bytes
from nnhal_tools.cli.console import make_console, print_table, print_text
from nnhal_tools.cli.errors import FAILED, CommandError, reporting_errors
from nnhal_tools.cli.fleet.local import LocalClusterFile, start_cluster, stop_cluster
from nnhal_tools.cli.options import Json, at_least

if TYPE_CHECKING:
    from rich.table import Table

    from nnhal_fleet.ray_cluster.connection import FleetConnection

_POLL_S = 0.2

Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Head of the cluster of Ray, on one of whose machines the command runs. Default: the local cluster.",
    ),
]
Members: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="MEMBER...", help="Ids of members, or the first letters of one.")
]
Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", parser=at_least(float, 0), metavar="S", help="Seconds to wait.")
]

fleet = typer.Typer(
    help="Services on several hosts, which Ray starts and watches (docs/fleet.md). It needs the extra `fleet`.",
    no_args_is_help=True,
)


@fleet.command()
@reporting_errors()
def up(
    serve: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTIONS...]", help="Options of `nnhal serve` for all members."),
    ] = None,
    *,
    address: Address = None,
    hosts: Annotated[
        int, typer.Option(parser=at_least(int, 1), metavar="N", help="Number of hosts of a local cluster.")
    ] = 3,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            help="Address of each service: HOST:PORT, or :PORT for the address of its host. "
            "Default: :50051; 127.0.0.1:0 in a local cluster.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder on each host for caches and logs. Default: in the state directory."),
    ] = None,
    timeout: Timeout = 180.0,
    state_dir: StateDirectory = None,
) -> None:
    """Start a service on each host of a cluster of Ray, and print the addresses for clients.

    Without --address, start a local cluster for trying things out: all of its hosts are on this machine.
    """
    from nnhal_fleet.ray_cluster.connection import start_fleet
    from nnhal_fleet.ray_cluster.options import FleetOptions

    file = LocalClusterFile.of(state_dir)
    used = address or start_cluster(file, hosts)
    default = ":50051" if address else "127.0.0.1:0"
    options = FleetOptions(listen or default, str(folder or file.path.parent), tuple(serve or ()))
    try:
        with _joined(used):
            running = start_fleet(options)
            status = _wait(running.status, _is_complete, timeout, "some members do not serve; see their service.log")
    except CommandError:
        if address is None:
            stop_cluster(file)
        raise
    typer.echo(f"fleet of {counted(len(status['members']), 'member')} in the cluster at {used}")
    for member in status["members"]:
        typer.echo(f"{member['id']} listening on {member['address']}")


@fleet.command()
@reporting_errors()
def status(address: Address = None, state_dir: StateDirectory = None, as_json: Json = False) -> None:
    """Show the members: their addresses, devices and load."""
    with _connected(address, state_dir) as found:
        report = found.status()
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    console = make_console()
    missing = sorted(set(report["hosts"]) - {member["id"] for member in report["members"]})
    print_text(console, counted(len(report["members"]), "member"))
    if report["members"]:
        print_table(console, members_table(report["members"]))
    for id_ in missing:
        print_text(console, f"{id_} does not serve")


@fleet.command()
@reporting_errors()
def down(address: Address = None, state_dir: StateDirectory = None) -> None:
    """End all services of the fleet in order; and the cluster, if it is a local one."""
    file = LocalClusterFile.of(state_dir)
    try:
        with _connected(address, state_dir) as found:
            found.stop()
    finally:
        if address is None:
            stop_cluster(file)
    typer.echo("the fleet has ended")


@fleet.command()
@reporting_errors()
def drain(
    members: Members, *, address: Address = None, state_dir: StateDirectory = None, timeout: Timeout = 60.0
) -> None:
    """Send the clients of members to others, and wait until they have left. `nnhal fleet resume` undoes it."""
    with _connected(address, state_dir) as found:
        ids = _ids(found.status(), members)
        found.set_drained(ids, drained=True)
        _wait(found.status, lambda report: _have_left(report, ids), timeout, "some clients have not left")
    typer.echo(f"drained {', '.join(ids)}")


@fleet.command()
@reporting_errors()
def resume(
    members: Members, *, address: Address = None, state_dir: StateDirectory = None, timeout: Timeout = 60.0
) -> None:
    """Let members take sessions again."""
    with _connected(address, state_dir) as found:
        ids = _ids(found.status(), members)
        found.set_drained(ids, drained=False)
        _wait(found.status, lambda report: _serve(report, ids), timeout, "some members do not serve")
    typer.echo(f"resumed {', '.join(ids)}")


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """Connect to a cluster, and report errors of the fleet as those of the command."""
    from nnhal_fleet.agent import FleetError
    from nnhal_fleet.ray_cluster.connection import joined_cluster

    try:
        with joined_cluster(address):
            yield
    except FleetError as error:
        raise CommandError(str(error), FAILED) from None


@contextmanager
def _connected(address: str | None, state_dir: Path | None) -> "Iterator[FleetConnection]":
    from nnhal_fleet.ray_cluster.connection import find_fleet

    if address is None:
        running = LocalClusterFile.of(state_dir).read()
        if running is None:
            raise CommandError("no local cluster runs; name one with --address, or start one with `nnhal fleet up`")
        address = running[1]
    with _joined(address):
        yield find_fleet()


def _wait(
    read: Callable[[], Mapping[str, Any]], is_done: Callable[[Mapping[str, Any]], bool], timeout: float, problem: str
) -> Mapping[str, Any]:
    """Return the state of the fleet as soon as a condition holds.

    Raises:
        CommandError: it does not hold in time.
    """
    end = time.monotonic() + timeout
    while not is_done(report := read()):
        if time.monotonic() >= end:
            raise CommandError(problem, FAILED)
        time.sleep(_POLL_S)
    return report


def _is_complete(report: Mapping[str, Any]) -> bool:
    return bool(report["hosts"]) and {member["id"] for member in report["members"]} == set(report["hosts"])


def _have_left(report: Mapping[str, Any], ids: Sequence[str]) -> bool:
    return all(member["draining"] and not member["sessions"] for member in report["members"] if member["id"] in ids)


def _serve(report: Mapping[str, Any], ids: Sequence[str]) -> bool:
    serving = {member["id"] for member in report["members"] if not member["draining"]}
    return serving.issuperset(ids)


def _ids(report: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    """Return the ids of members, which may be given by their first letters.

    Raises:
        CommandError: there is no such member, or several.
    """
    found = []
    for text in given:
        matching = [id_ for id_ in report["hosts"] if id_.startswith(text)]
        if len(matching) != 1:
            raise CommandError(f"{text!r} names {counted(len(matching), 'member')}; members: {report['hosts']}")
        found.append(matching[0])
    return found


def members_table(members: Sequence[Mapping[str, Any]]) -> "Table":
    """Return a table of members."""
    from rich.table import Table

    table = Table()
    for heading in ("member", "address", "state", "sessions", "work", "free memory", "models", "backends", "version"):
        table.add_column(heading, no_wrap=heading == "member")
    for member in members:
        table.add_row(
            member["id"],
            member["address"],
            "draining" if member["draining"] else "serving",
            str(member["sessions"]),
            str(member["executions"]),
            format_bytes(member["free_bytes"]),
            str(len(member["models"])),
            ", ".join([*member["backends"], *member["accelerators"]]),
            f"{member['version']} (start {member['generation']})",
        )
    return table
