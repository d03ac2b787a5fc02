"""Limits of the size and of the work of sub-models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubModelLimits:
    """Limits of a sub-model.

    Attributes:
        operators: operators in all subgraphs.
        tensors: tensors in all subgraphs.
        subgraphs: subgraphs.
        depth: nesting of IF and WHILE.
        rank: dimensions of a tensor.
        tensor_bytes: size of one tensor.
        live_bytes: size of the tensors that exist at the same time.
        trips: executions of the body of a WHILE.
        executions: operators that one execution of the sub-model runs.
        work: elementary steps of one execution, for example multiplications.
    """

    operators: int = 5_000
    tensors: int = 20_000
    subgraphs: int = 64
    depth: int = 3
    rank: int = 8
    tensor_bytes: int = 2**29
    live_bytes: int = 2**31
    trips: int = 2**16
    executions: int = 2**20
    work: int = 2**39


def max_depthwise_channels(type_: str) -> int:
    """Return the most output channels of a depthwise convolution that LiteRT's own kernel computes.

    It computes as many output positions at a time as its buffer has room for. With more channels there is no room, and
    the kernel loops for ever. XNNPACK computes any number of channels, but only with constant weights and a constant
    bias.

    Args:
        type_: the engine's type of the filter.
    """
    return 4832 if type_ in ("FLOAT32", "FLOAT16") else 2048
