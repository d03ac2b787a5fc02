"""Hooks of the self-test between the services that a check starts itself, and the check."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

Trace = Sequence[str]
"""Events that a plug-in has recorded, in order."""


def unchanged(trace: Trace) -> Trace:
    """Return a trace as it is."""
    return trace


@dataclass(frozen=True)
class Interposer:
    """Faults of a hosting service. By default there are none.

    `proxy` yields the address for the check, given that of a service. `edit_trace` returns the events that it sees.
    """

    proxy: Callable[[str], AbstractContextManager[str]] = nullcontext
    edit_trace: Callable[[Trace], Trace] = unchanged


NO_FAULTS = Interposer()
