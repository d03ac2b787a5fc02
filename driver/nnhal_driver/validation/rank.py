"""Limit of this device on the rank of tensors."""

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
