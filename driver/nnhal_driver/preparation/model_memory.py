"""Memory of prepared models, as estimated."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnhal_driver.execution.buffer import ReserveMemory
from nnhal_driver.graph import Graph, drop_caches
from nnhal_driver.memory_estimate import saved_bytes
from nnhal_driver.model_cache.errors import CacheMissError
from nnhal_driver.model_cache.files import OpenFiles


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Memory of one model.

    Attributes:
        reserve: reserves more.
        reservation: of the model; that of its engine is apart.
        size: bytes of the reservation.
    """

    reserve: ReserveMemory
    reservation: object
    size: int


def free_model(graphs: Sequence[Graph], memory: ModelMemory) -> None:
    """Free what refers back to the graphs of a model. The reservation of its memory ends with the call."""
    drop_caches(graphs)


def saved_size(files: OpenFiles) -> int:
    """Return the bytes of memory that a saved model needs.

    Raises:
        CacheMissError: the files cannot be read.
    """
    try:
        return saved_bytes(files)
    except OSError as error:
        raise CacheMissError(f"the cache files cannot be read: {error}") from error
