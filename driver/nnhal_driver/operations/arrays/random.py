"""Shapes of RANDOM_MULTINOMIAL and LSH_PROJECTION."""

from math import prod

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.sequence import matrix_shape
from nnhal_driver.operations.shape import require_shape, shape_rule

SPARSE_DEPRECATED = 1
DENSE = 2
SPARSE = 3
"""Values of the argument `type` of LSH_PROJECTION."""


@shape_rule(OperationType.RANDOM_MULTINOMIAL, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def random_multinomial(call: OperationCall) -> list[Shape]:
    """Return [batches, num_samples]."""
    batches, _ = matrix_shape(call, "logits")
    require_shape(call, "seeds", (2,))
    samples = call.integer("num_samples")
    call.require(samples > 0, f"num_samples is {samples}; it must be > 0")
    return [(batches, samples)]


@shape_rule(OperationType.LSH_PROJECTION)
def lsh_projection(call: OperationCall) -> list[Shape]:
    """Return [num_hash], or [num_hash * num_bits] for DENSE."""
    hashes, bits = matrix_shape(call, "hash")
    rows = call.shape("input")[:1]
    kind = call.integer("type")
    call.require(kind in (SPARSE_DEPRECATED, DENSE, SPARSE), f"type is {kind}; it must be in 1..3")
    call.require(bits <= 32, f"hash has {bits} bits; it must have at most 32")
    call.require(rows > (0,), f"input has shape {list(call.shape('input'))}; it must have rows")
    call.require(call.has("weight") == (kind == DENSE), "weight must be given with type 2 (DENSE), and with no other")
    if kind == DENSE:
        require_shape(call, "weight", rows)
    return [(hashes * bits,) if kind == DENSE else (hashes,)]


@multiply_adds(OperationType.RANDOM_MULTINOMIAL, of=("logits", "num_samples"))
def sampling_work(logits: Shape, samples: int) -> int:
    """Count a random number, and a search, for each sample."""
    return logits[0] * (2**6 * samples + 2**10)


@multiply_adds(OperationType.LSH_PROJECTION, of=("hash", "input"))
def hashing_work(seeds: Shape, rows: Shape) -> int:
    """Count the fingerprint of each row for each seed."""
    return prod(seeds) * (2**6 * rows[0] + 2**5 * prod(rows))
