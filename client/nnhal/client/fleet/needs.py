"""Needs of a client, by which a fleet chooses the service for it."""

from nnhal.client.core.arguments import type_error
from nnhal.client.core.cache import model_digest
from nnhal.types import Memory, Model
from nnhal.v1.session_pb2 import SessionNeeds

_COPIES = 2
"""Copies of the constants that a service holds while it prepares a model."""


def session_needs(model: Model | None, accelerator: str) -> SessionNeeds | None:
    """Return the needs of a client; None if any service will do.

    Args:
        model: the model that the client is about to use, if it is known.
        accelerator: name of an accelerator, backend or device; "" for any.

    Raises:
        TypeError: the accelerator is not a text.
    """
    if not isinstance(accelerator, str):
        raise type_error("accelerator", accelerator, "the name of an accelerator, a backend or a device")
    if model is None:
        return SessionNeeds(accelerator=accelerator) if accelerator else None
    pools = sum(pool.size for pool in model.pools if isinstance(pool, Memory))
    constants = memoryview(model.operand_values).nbytes + pools
    return SessionNeeds(models=[model_digest(model)], accelerator=accelerator, memory_bytes=_COPIES * constants)
