"""Estimates of the memory that models need, so that it can be reserved before it is allocated."""

from nnhal.types import Model
from nnhal_driver.graph import constant_bytes, copied_regions
from nnhal_driver.model_cache.files import OpenFiles, file_status

_MODEL_BYTES = 2**17
"""Memory of the smallest prepared model."""
_OPERATION_BYTES = 6 * 2**10
"""Memory of one operation while it is prepared, and afterwards. A chain of ADD needs 6.0 KiB with CpuAcc."""
_OPERAND_BYTES = 2**10
"""Memory of one operand, without its value."""
_DOCUMENT_FACTOR = 16
"""Memory of a saved model, in multiples of the document that describes it."""


def model_bytes(model: Model) -> int:
    """Return the bytes that a valid model needs besides its pools, without the memory of its engine."""
    operands = sum(len(subgraph.operands) for subgraph in model.subgraphs)
    operations = sum(len(subgraph.operations) for subgraph in model.subgraphs)
    return _MODEL_BYTES + operations * _OPERATION_BYTES + operands * _OPERAND_BYTES + _copied_bytes(model)


def saved_bytes(files: OpenFiles) -> int:
    """Return the bytes that are needed to load a saved model, without the memory of its engine.

    Raises:
        CacheMissError: the files cannot be read.
    """
    model, data = file_status(files.model), file_status(files.data)
    return _MODEL_BYTES + _DOCUMENT_FACTOR * model.st_size + data.st_size


def _copied_bytes(model: Model) -> int:
    """Return the bytes that `nnhal_driver.graph` copies of constants. Overlapping ones count once."""
    return sum(region.size for _, regions, _ in copied_regions(constant_bytes(model)) for region in regions)
