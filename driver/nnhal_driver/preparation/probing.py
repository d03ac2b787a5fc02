"""Probes as work of their own: a preparation asks for its slot when the probe of its model has ended.

So probes wait for other probes only, and models that are known do not wait for them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal_driver.preparation.model_preparer import PreparationWork
from nnhal_driver.preparation.outcome import Outcome, failed_outcome
from nnhal_driver.quarantine import Probe
from nnhal_driver.scheduling.preparation import Check

PROBES = 2
"""Number of probes of a device at once. An owner has one of them at most."""

_PROBED = Outcome(ErrorStatus.NONE)


@dataclass(frozen=True, slots=True)
class ProbeWork:
    """Steps of a probe: see `scheduling.preparation.Work`.

    Attributes:
        work: of the preparation, which ends with the probe if the probe fails.
        start: starts the preparation.
    """

    probe: Probe
    work: PreparationWork
    start: Callable[[], None]

    def run(self, check: Check) -> Outcome:
        """Wait for the end of the probe. `check` raises if the preparation must end."""
        self.probe(check)
        return _PROBED

    def fail(self, error: BaseException) -> Outcome:
        """Return the outcome of a preparation whose probe ends with an error."""
        return failed_outcome(error)

    def notify(self, outcome: Outcome) -> None:
        """Start the preparation, or end it."""
        if outcome is _PROBED:
            try:
                self.start()
                return
            except HalError as error:
                outcome = self.work.fail(error)
        self.work.close()
        self.work.notify(outcome)

    def close(self) -> None:
        """Do nothing: the preparation frees its resources."""
