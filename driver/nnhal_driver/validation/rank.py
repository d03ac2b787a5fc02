"""Limits of this device on the rank of tensors, and on what describes their dimensions."""

from nnhal.errors import general_failure

MAX_RANK = 32
"""Highest rank of a tensor. numpy takes 64, and kernels add some dimensions of their own."""


def check_rank(rank: int, name: str) -> None:
    """Reject a tensor whose rank is too high; `name` denotes it in the message.

    Raises:
        HalError: GENERAL_FAILURE, because the HAL allows such a rank and this driver does not.
    """
    if rank > MAX_RANK:
        raise general_failure(f"{name} has rank {rank}; this device takes at most {MAX_RANK}")


def check_shape_elements(count: int, name: str) -> None:
    """Reject an argument that describes dimensions with more elements than two for each dimension of MAX_RANK.

    Call it before the elements are read: a client may send millions in memory that it has never touched.

    Raises:
        HalError: GENERAL_FAILURE, for the same reason as `check_rank`.
    """
    if count > 2 * MAX_RANK:
        raise general_failure(f"{name} has {count} elements; this device takes at most {2 * MAX_RANK}")
