"""`nnhal fleet`: start a fleet on a cluster of Ray, see its members, and take them out of use."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from nnhal_tools.cli.admin.connection import connected
from nnhal_tools.cli.console import format_bytes, make_console, print_json, print_table, print_text
from nnhal_tools.cli.errors import FAILED, CommandError, as_command_errors
from nnhal_tools.cli.fleet.local import LocalClusterFile, start_cluster, stop_cluster
from nnhal_tools.cli.options import Json, StateDirectory, at_least, parse_target
from nnhal_tools.tables import counted, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from nnhal_fleet.ray_cluster.connection import FleetConnection

Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Head of the cluster of Ray, on one of whose machines the command runs. Default: the local cluster.",
    ),
]
Member: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--target",
        parser=parse_target,
        metavar="ADDR",
        help="Address of the administration of a member of a fleet without Ray, on this machine also of the service.",
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
    min_hosts: Annotated[
        int,
        typer.Option(parser=at_least(int, 1), metavar="N", help="Least number of hosts, with --max-hosts."),
    ] = 1,
    max_hosts: Annotated[
        int | None,
        typer.Option(
            parser=at_least(int, 1),
            metavar="N",
            help="Let Ray's autoscaler add hosts up to this number while executions wait, and end those that are not "
            "needed. At this number, new clients are refused while executions wait for seconds.",
        ),
    ] = None,
    shrink_after: Annotated[
        float,
        typer.Option(
            parser=at_least(float, 1), metavar="S", help="Seconds for which fewer hosts must be enough to end some."
        ),
    ] = 120.0,
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
    if max_hosts is not None and max_hosts < min_hosts:
        raise CommandError(f"--max-hosts is {max_hosts}; expected at least {min_hosts}, the value of --min-hosts")
    from nnhal_fleet.ray_cluster.connection import start_fleet
    from nnhal_fleet.ray_cluster.options import FleetOptions
    from nnhal_fleet.rolling import is_complete, wait_for

    file = LocalClusterFile.of(state_dir)
    used = address or start_cluster(file, 0 if max_hosts else hosts, max_hosts or 0)
    default = ":50051" if address else "127.0.0.1:0"
    limits = (min_hosts, max_hosts, shrink_after) if max_hosts else ()
    options = FleetOptions(listen or default, str(folder or file.path.parent), tuple(serve or ()), *limits)
    try:
        with _joined(used):
            running = start_fleet(options)
            problem = "some members do not serve; see service.log in their folders"
            status = wait_for(running, is_complete, timeout, problem)
    except CommandError:
        if address is None:
            stop_cluster(file)
        raise
    typer.echo(f"fleet of {counted(len(status['members']), 'member')} in the cluster at {used}")
    for member in status["members"]:
        typer.echo(f"{member['id']} listening on {member['address']}")


@fleet.command()
def status(
    address: Address = None, target: Member = None, state_dir: StateDirectory = None, as_json: Json = False
) -> None:
    """Show the members: their addresses, devices and load."""
    with _watched(address, target, state_dir) as read_report:
        report = read_report()
    if as_json:
        print_json(report)
        return
    console = make_console()
    missing = sorted(set(report["hosts"]) - {member["id"] for member in report["members"]})
    print_text(console, counted(len(report["members"]), "member"))
    if report["members"]:
        print_table(console, members_table(report["members"]))
    for id_ in missing:
        print_text(console, f"{id_} does not serve")
    if (scaling := report["scaling"]) is not None:
        print_text(console, scaling_text(scaling))


@fleet.command()
def top(
    address: Address = None,
    target: Member = None,
    *,
    interval: Annotated[
        float, typer.Option(parser=at_least(float, 0.2), metavar="S", help="Seconds between two looks.")
    ] = 1.0,
    state_dir: StateDirectory = None,
) -> None:
    """Show the members live, until Ctrl-C. Without a terminal, show them once, as `nnhal fleet status` does."""
    from rich.live import Live

    console = make_console()
    if not console.is_terminal:
        status(address, target, state_dir)
        return
    screen = Live(console=console, screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), _watched(address, target, state_dir) as read_report, screen as live:
        while True:
            live.update(members_table(read_report()["members"]), refresh=True)
            time.sleep(interval)


@fleet.command()
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
def drain(
    members: Members, *, address: Address = None, state_dir: StateDirectory = None, timeout: Timeout = 60.0
) -> None:
    """Send the clients of members to others, and wait until they have left. `nnhal fleet resume` undoes it."""
    from nnhal_fleet.rolling import drain_members

    with _connected(address, state_dir) as found:
        ids = _ids(found.status(), members)
        drain_members(found, ids, timeout)
    typer.echo(f"drained {', '.join(ids)}")


@fleet.command()
def resume(
    members: Members, *, address: Address = None, state_dir: StateDirectory = None, timeout: Timeout = 60.0
) -> None:
    """Let members take sessions again."""
    from nnhal_fleet.rolling import resume_members

    with _connected(address, state_dir) as found:
        ids = _ids(found.status(), members)
        resume_members(found, ids, timeout)
    typer.echo(f"resumed {', '.join(ids)}")


@fleet.command()
def restart(
    members: Annotated[
        list[str] | None,
        typer.Argument(metavar="MEMBER...", help="Ids of members, or the first letters of one. Default: all."),
    ] = None,
    *,
    address: Address = None,
    state_dir: StateDirectory = None,
    timeout: Timeout = 120.0,
) -> None:
    """Drain members and start their services again, one after the other, with the version that is installed now.

    No call fails, if another member can take the clients.
    """
    from nnhal_fleet.rolling import replace_services

    with _connected(address, state_dir) as found:
        report = found.status()
        ids = _ids(report, members) if members else report["hosts"]
        replace_services(found, ids, timeout, lambda id_: typer.echo(f"{id_} serves again"))


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """Connect to a cluster, and report errors of the fleet as those of the command."""
    from nnhal_fleet.agent import FleetError
    from nnhal_fleet.ray_cluster.connection import joined_cluster

    with as_command_errors(FleetError, exit_code=FAILED), joined_cluster(address):
        yield


@contextmanager
def _watched(
    address: str | None, target: str | None, state_dir: Path | None
) -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Connect to a fleet, and return a function that returns its members."""
    if target is None:
        with _connected(address, state_dir) as found:
            yield found.status
        return
    if address is not None:
        raise CommandError("--address names a cluster of Ray, and --target a member of a fleet; give one of them")
    with connected(target, state_dir) as member:

        def read() -> Mapping[str, Any]:
            members = member.snapshot()["members"]
            return {"members": members, "hosts": [each["id"] for each in members], "scaling": None}

        yield read


@contextmanager
def _connected(address: str | None, state_dir: Path | None) -> "Iterator[FleetConnection]":
    from nnhal_fleet.ray_cluster.connection import find_fleet

    if address is None:
        running = LocalClusterFile.of(state_dir).read()
        if running is None:
            raise CommandError(
                "no local cluster runs; name one with --address, or start one with `nnhal fleet up`. In a fleet "
                "without Ray, ask a member: --target"
            )
        address = running[1]
    with _joined(address):
        yield find_fleet()


def _ids(report: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    """Return the ids of members, which may be given by their first letters."""
    found = []
    for text in given:
        matching = [id_ for id_ in report["hosts"] if id_.startswith(text)]
        if len(matching) != 1:
            raise CommandError(f"{text!r} names {counted(len(matching), 'member')}; members: {report['hosts']}")
        found.append(matching[0])
    return found


def scaling_text(scaling: Mapping[str, Any]) -> str:
    """Return what a fleet that asks Ray for hosts wants, in a sentence for each part."""
    wanted = counted(scaling["hosts"], "host")
    parts = [f"the fleet wants {wanted}, of {scaling['min_hosts']} to {scaling['max_hosts']}", scaling["reason"]]
    refusal = scaling["refusal"] and f"new clients are refused: {scaling['refusal']}"
    return ". ".join(part for part in (*parts, refusal) if part)


def members_table(members: Sequence[Mapping[str, Any]]) -> "Table":
    """Return a table of members."""
    headings = ("member", "address", "state", "sessions", "work", "free memory", "models", "backends", "version")
    table = make_table(*headings)
    table.columns[0].no_wrap = True
    for member in members:
        table.add_row(
            member["id"],
            member["address"],
            "draining" if member["draining"] else "serving",
            str(member["sessions"]),
            str(member["executions"]),
            format_bytes(member["free_bytes"]),
            str(models if isinstance(models := member["models"], int) else len(models)),
            ", ".join([*member["backends"], *member["accelerators"]]),
            f"{member['version']} (start {member['generation']})",
        )
    return table
