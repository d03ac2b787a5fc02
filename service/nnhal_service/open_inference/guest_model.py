"""Model by name, as one client uses it."""

from dataclasses import dataclass

from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.repository.served_model import ServedModel


@dataclass(frozen=True, eq=False, slots=True)
class GuestModel:
    """A served model as one client uses it."""

    served: ServedModel
    prepared: PreparedModel
    handle: bytes
