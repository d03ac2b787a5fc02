"""Preparation or execution that a thread works on, for code that waits for others, for example for a plug-in."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from nnhal_driver.scheduling.paced_check import proceed


@dataclass(frozen=True, slots=True)
class CurrentWork:
    """Functions of the work that waits.

    Attributes:
        check: raises a HalError if the work must end.
        give_way: lets other work use the slot and the thread of this one meanwhile.
        usual_s: seconds that it usually takes at most; 0 if unknown.
    """

    check: Callable[[], None] = proceed
    give_way: Callable[[], None] = proceed
    usual_s: float = 0.0


_NOTHING = CurrentWork()

current_work: ContextVar[CurrentWork] = ContextVar("current_work", default=_NOTHING)
"""Work of the current context; work that nothing ends early, outside of preparations and executions of plug-ins."""
