"""`nnhal admin` and `nnhal reload`: the state of a running service, and what an operator can do to it."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal.admin.plain import to_plain
from nnhal_tools.cli.admin.columns import cells
from nnhal_tools.cli.admin.connection import Service, Worker, act, connected, snapshot_command
from nnhal_tools.cli.console import (
    format_age,
    format_bytes,
    print_json,
    print_table,
    print_text,
    printable,
)
from nnhal_tools.cli.errors import FAILED, NEEDS_RESTART, CommandError
from nnhal_tools.cli.options import Json, StateDirectory
from nnhal_tools.cli.security_options import client_command
from nnhal_tools.tables import counted, make_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from nnhal_tools.cli.admin.connection import AdminConnection

_RELOADED = "reloaded"
"""`ServiceSnapshot.last_reload` after a reload that has succeeded."""
_POLL_S, _SILENT_S = 0.2, 15.0
"""Seconds between two looks at a reload, and for which the service may be silent."""

admin = typer.Typer(
    help="State of a running service of this machine, and what an operator can do to it. `nnhal top` shows the state "
    "live; `nnhal reload` and `nnhal quarantine` are further commands for operators.",
    no_args_is_help=True,
)


def reload(
    address: Annotated[
        str, typer.Argument(metavar="[ADDR]", help="An address of the service. Needed if several services run.")
    ] = "",
    state_dir: StateDirectory = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the last worker has been replaced.")] = False,
) -> None:
    """Replace the workers of a service one by one, with the current settings and plug-ins. No call fails.

    The exit code is 0 if all settings count, 1 if the reload fails (of workers, only with --wait), and 3 if a setting
    has changed that needs a restart, such as the addresses and the number of workers.
    """
    with connected(address or None, state_dir) as service:
        response = service.call("Reload")
        typer.echo(response.result)
        if wait:
            typer.echo(_wait_for_reload(service))
    if response.needs_restart:
        raise typer.Exit(NEEDS_RESTART)


def _wait_for_reload(service: "AdminConnection") -> str:
    """Wait for the end of a reload.

    Raises:
        CommandError: it fails, or the service has ended.
    """
    silent_since = None
    while True:
        try:
            snapshot, silent_since = service.snapshot(), None
        except CommandError:  # the process that answers is replaced too
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > _SILENT_S:
                raise
        else:
            result: str = snapshot["last_reload"]
            if result:
                if result != _RELOADED:
                    raise CommandError(f"the reload has failed: {result}", FAILED)
                return result
        time.sleep(_POLL_S)


@snapshot_command(admin)
def status(console: "Console", snapshot: dict[str, Any]) -> None:
    """Show the state of the service and of its workers, and the last warnings. --json prints everything."""
    now, load = snapshot["at"], snapshot["load"]
    lines = [
        f"nnhal {snapshot['version']} is {snapshot['state']}, for {format_age(now - snapshot['started_at'])} "
        f"(process {snapshot['pid']})",
        f"addresses: {', '.join(snapshot['addresses'])}",
        f"{counted(len(snapshot['sessions']), 'session')}, {counted(len(snapshot['models']), 'prepared model')}, "
        f"{counted(load['executions'], 'execution')} ({load['rejected']} failed), {load['running']} running, "
        f"{load['queued']} queued",
    ]
    print_text(console, "\n".join(lines))
    headings = ("worker", "state", "age", "sessions", "memory", "threads", "restarts", "last end")
    _print_rows(console, headings, cells(snapshot["workers"], headings, now))
    for warning in snapshot["warnings"]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(warning["at"]))
        print_text(console, printable(f"{at} {warning['level']} {warning['event']} {warning['text']}"))


@snapshot_command(admin, "sessions")
def sessions(console: "Console", snapshot: dict[str, Any]) -> None:
    """List the sessions."""
    headings = ("session", "identity", "client", "age", "calls", "memory", "models", "connected", "placement")
    print_text(console, counted(len(snapshot["sessions"]), "session"))
    _print_rows(console, headings, cells(snapshot["sessions"], headings, snapshot["at"]))


@client_command(admin)
def end_session(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session in `nnhal admin sessions`.")],
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """End a session at once, with all that it owns. Its client learns that an operator ended it."""
    act(target, state_dir, "EndSession", session=session)


@snapshot_command(admin, "models")
def models(console: "Console", snapshot: dict[str, Any]) -> None:
    """List the prepared models, with their partitions, and why backends of higher preference do not run them."""
    headings = ["model", "digest", "name", "backends", "priority", "cached"]
    headings += ["uses", "best", "longest", "memory", "drift"]
    print_text(console, counted(len(snapshot["models"]), "prepared model"))
    _print_rows(console, headings, cells(snapshot["models"], headings, snapshot["at"]))
    for each in snapshot["models"]:
        for partition in each["partitions"]:
            if partition["reasons"]:
                text = f"{each['id']}: {', '.join(dict.fromkeys(partition['operations']))} on {partition['backend']}"
                print_text(console, f"{text}, because {'; '.join(partition['reasons'])}")


@snapshot_command(admin, "cache")
def cache(console: "Console", snapshot: dict[str, Any]) -> None:
    """Show the cache of saved models of all clients. `nnhal cache` is for the entries of one client."""
    found = snapshot["cache"]
    size = f"{format_bytes(found['size'])} of {format_bytes(found['max_bytes'])}" if found["max_bytes"] else "off"
    print_text(
        console,
        f"{found['directory']}: {counted(len(found['entries']), 'model')}, {size}\n"
        f"{found['hits']} hits, {found['misses']} misses, {found['saves']} saves, {found['evictions']} evictions, "
        f"{found['set_aside']} damaged",
    )
    for reason, count in found["miss_reasons"].items():
        print_text(console, f"{count} misses: {reason}")
    headings = ("token", "name", "identity", "size", "saved", "used", "hits", "backends")
    _print_rows(console, headings, cells(found["entries"], headings, snapshot["at"]))


@client_command(admin)
def clear_cache(
    tokens: Annotated[
        list[str] | None, typer.Argument(metavar="TOKEN...", help="The first hex digits of tokens. Default: all.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option(metavar="IDENTITY", help="Entries of this owner only. Default: of all.")
    ] = None,
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Remove saved models. Prepared models and running clients are not affected."""
    act(target, state_dir, "ClearCache", tokens=tokens or [], identity=identity)


@client_command(admin)
def drain(worker: Worker = None, target: Service = None, state_dir: StateDirectory = None) -> None:
    """Take no more sessions, report NOT_SERVING, and send clients elsewhere. What runs has its grace time.

    With --worker, the clients go to the other workers. `nnhal admin resume` undoes it.
    """
    act(target, state_dir, "Drain", worker=worker)


@client_command(admin)
def resume(worker: Worker = None, target: Service = None, state_dir: StateDirectory = None) -> None:
    """Take sessions again, after `nnhal admin drain`."""
    act(target, state_dir, "Resume", worker=worker)


@client_command(admin)
def config(target: Service = None, state_dir: StateDirectory = None, as_json: Json = False) -> None:
    """Print the effective settings and their origins as TOML, without secrets."""
    with connected(target, state_dir) as service:
        found = [to_plain(each) for each in service.call("ListSettings").settings]
    if as_json:
        print_json(found)
        return
    for each in found:
        line = f"{each['name']} = {each['value']}" if each["value"] else f"# {each['name']} is not set"
        typer.echo(f"{line}  # {each['origin']}")


@client_command(admin)
def log_level(
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR.")],
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Log from this severity on, in all processes of the service, until its next start or reload."""
    act(target, state_dir, "SetLogLevel", level=level)


@client_command(admin)
def stacks(worker: Worker = None, target: Service = None, state_dir: StateDirectory = None) -> None:
    """Print the stacks of all threads."""
    with connected(target, state_dir) as service:
        found = service.call("GetStacks", worker=worker).stacks
    for name in sorted(found):
        typer.echo(f"==== {name}\n{found[name]}")


@client_command(admin)
def metrics(target: Service = None, state_dir: StateDirectory = None) -> None:
    """Print the metrics of all workers in the text format of Prometheus."""
    with connected(target, state_dir) as service:
        typer.echo(service.call("GetMetrics").text, nl=False)


def _print_rows(console: "Console", headings: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> None:
    """Print a table without empty columns, if it has rows."""
    if not rows:
        return
    shown = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    table = make_table(*(headings[number] for number in shown))
    for row in rows:
        table.add_row(*(printable(row[number]) for number in shown))
    print_table(console, table)
