"""Probe of models that are new to the process: another process prepares and runs them first."""

from collections.abc import Callable
from typing import Protocol

from nnhal.types import Model

Probe = Callable[[Callable[[], None]], None]
"""Waits for the end of a probe, given a function that raises if the preparation must end. Never raises by itself."""


class ModelProbe(Protocol):
    """Prepares and runs new models in another process. What crashes there goes to the quarantine."""

    def begin(self, device: str, model: Model, digest: bytes) -> Probe | None:
        """Copy a model, and return the probe of it; None if the model is known.

        The memory of the model may change once this method has returned.

        Raises:
            MemoryError: there is not enough memory for the copy.
        """
