"""`nnhal top`: live view of a running service in the terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.admin.connection import AdminConnection, Service, connected
from nnhal_tools.cli.console import make_console, print_json
from nnhal_tools.cli.errors import CommandError
from nnhal_tools.cli.options import Json, StateDirectory, at_least
from nnhal_tools.cli.security_options import with_security

if TYPE_CHECKING:
    from rich.console import Console

_SORT_KEYS = {"c": "calls", "m": "memory", "l": "latency", "a": "age"}
_MIN_INTERVAL_S = 0.2
_ESCAPE = "\x1b"


@with_security
def top(
    *,
    interval: Annotated[
        float, typer.Option(parser=at_least(float, 0), metavar="S", help="Seconds between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once, and exit.")] = False,
    as_json: Json = False,
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Show a service live: throughput, latency, workers, models and sessions.

    Keys sort the models by calls (c), memory (m), latency (l) or age (a), pause (p), and quit (q). Without a terminal,
    and with --json, the state is printed once. Rates are those of the last interval.
    """
    console = make_console()
    with connected(target, state_dir) as service:
        if as_json or once or not (console.is_terminal and sys.stdin.isatty()):
            _print_once(console, service, interval, as_json=as_json)
            return
        with _raw_keys():
            _show_live(console, service, max(interval, _MIN_INTERVAL_S))


def _print_once(console: "Console", service: AdminConnection, interval_s: float, *, as_json: bool) -> None:
    from nnhal_tools.cli.admin.screen import rates_between, render_screen

    snapshot = service.snapshot()
    if as_json:
        print_json(snapshot)
        return
    time.sleep(interval_s)
    earlier, snapshot = snapshot, service.snapshot()
    if not console.is_terminal:
        console.width = min(console.width, 120)
    console.print(render_screen(snapshot, rates_between(earlier, snapshot), "calls", height=None))


def _show_live(console: "Console", service: AdminConnection, interval_s: float) -> None:
    """Show the service until the user quits. A service that does not answer for a while is shown as it was."""
    from rich.live import Live

    from nnhal_tools.cli.admin.screen import KEYS, rates_between, render_screen

    snapshot, earlier, sort, note, paused = service.snapshot(), None, "calls", KEYS, False
    rates = rates_between(None, snapshot)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        next_look = time.monotonic() + interval_s
        while True:
            screen = render_screen(snapshot, rates, sort, height=console.height, note=note)
            live.update(screen, refresh=True)
            key = _read_key(max(0.0, next_look - time.monotonic()))
            if key in ("q", "\x03", _ESCAPE):
                return
            sort = _SORT_KEYS.get(key, sort)
            paused ^= key == "p"
            if time.monotonic() < next_look:
                continue
            next_look = time.monotonic() + interval_s
            if paused:
                note = f"paused  {KEYS}"
                continue
            try:
                snapshot, earlier = service.snapshot(), snapshot
                rates, note = rates_between(earlier, snapshot), KEYS
            except CommandError as error:
                note = str(error)


@contextmanager
def _raw_keys() -> Iterator[None]:
    """Have the terminal deliver keys at once and without an echo."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before: list[Any] = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_key(timeout_s: float) -> str:
    """Return the next key, or "" if there is none in time. Keys that send several characters count as none."""
    import os
    import select

    if not select.select([sys.stdin], [], [], timeout_s)[0]:
        return ""
    data = os.read(sys.stdin.fileno(), 64)
    if not data:  # the terminal has gone
        return "q"
    return data.decode("ascii", "ignore").lower() if len(data) == 1 else ""
