"""Estimates of the memory that models need, so that it can be reserved before it is allocated."""

from collections.abc import Iterator

from nnhal.types import Memory, Model, Operand, SymmPerChannelQuantParams
from nnhal_driver.graph import constant_bytes, copied_regions
from nnhal_driver.model_cache.files import OpenFiles, file_status

_MODEL_BYTES = 2**17
"""Memory of the smallest prepared model."""
_OPERATION_BYTES = 6 * 2**10
"""Memory of one operation while it is prepared, and afterwards. A chain of ADD needs 6.0 KiB with CpuAcc."""
_OPERAND_BYTES = 2**10
"""Memory of one operand, without its value."""
_ARGUMENT_BYTES = 2**8
"""Memory of one input or output of an operation, with its name. CONCATENATION of 900,000 inputs needs 210 bytes."""
_NUMBER_BYTES = 40
"""Memory of one dimension, or of one scale of a channel."""
_DOCUMENT_FACTOR = 16
"""Memory of a saved model, in multiples of the document that describes it."""


def model_bytes(model: Model) -> int:
    """Return the bytes that a valid model needs, without the memory of its engine.

    Of the pools, those that are bytes count: no other object has them.
    """
    operands = [operand for subgraph in model.subgraphs for operand in subgraph.operands]
    operations = [operation for subgraph in model.subgraphs for operation in subgraph.operations]
    return (
        _MODEL_BYTES
        + _OPERATION_BYTES * len(operations)
        + _ARGUMENT_BYTES * sum(len(operation.inputs) + len(operation.outputs) for operation in operations)
        + _OPERAND_BYTES * len(operands)
        + _NUMBER_BYTES * sum(map(_numbers, operands))
        + len(model.operand_values)
        + sum(_pools_of_bytes(model))
        + _copied_bytes(model)
    )


def saved_bytes(files: OpenFiles) -> int:
    """Return the bytes that are needed to load a saved model, without the memory of its engine.

    Raises:
        CacheMissError: the files cannot be read.
    """
    model, data = file_status(files.model), file_status(files.data)
    return _MODEL_BYTES + _DOCUMENT_FACTOR * model.st_size + data.st_size


def _numbers(operand: Operand) -> int:
    params = operand.extra_params
    return len(operand.dimensions) + (len(params.scales) if isinstance(params, SymmPerChannelQuantParams) else 0)


def _pools_of_bytes(model: Model) -> Iterator[int]:
    """Yield the sizes of pools that came with the model."""
    for pool in model.pools:
        if isinstance(pool, Memory) and isinstance(pool.buffer.base, bytes):
            yield len(pool.buffer.base)


def _copied_bytes(model: Model) -> int:
    """Return the bytes that `nnhal_driver.graph` copies of constants. Overlapping ones count once."""
    return sum(region.size for _, regions, _ in copied_regions(constant_bytes(model)) for region in regions)
