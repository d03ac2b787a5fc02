"""Work of one preparation on a preparation thread."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from nnhal.errors import HalError
from nnhal_driver.interrupts import is_interrupt
from nnhal_driver.preparation.outcome import Outcome, PreparationCallback, failed_outcome
from nnhal_driver.scheduling.preparation import Check

Prepare: TypeAlias = Callable[[Check], Outcome]


@dataclass(frozen=True)
class PreparationWork:
    """Steps of one preparation: see `scheduling.preparation.Work`.

    Attributes:
        prepare: does the work.
        notify: the callback of the client.
        close: closes the files.
    """

    prepare: Prepare
    notify: PreparationCallback
    close: Callable[[], None]

    def run(self, check: Check) -> Outcome:
        """Return the outcome, also if the work fails."""
        return run_preparation(nullcontext(), lambda: self.prepare(check))

    def fail(self, error: HalError) -> Outcome:
        """Return the outcome of an early end."""
        return Outcome.from_error(error)


def run_preparation(files: AbstractContextManager[object], prepare: Callable[[], Outcome]) -> Outcome:
    """Run a preparation, close its files, and return its outcome, also if it fails.

    Raises:
        KeyboardInterrupt: the user interrupts the program whose main thread this is.
    """
    try:
        with files:
            return prepare()
    except BaseException as error:
        if is_interrupt(error):
            raise
        outcome = failed_outcome(error)
        # its frames may refer to the error, and so keep all objects of the preparation until garbage is collected
        error.__traceback__ = None
        return outcome
