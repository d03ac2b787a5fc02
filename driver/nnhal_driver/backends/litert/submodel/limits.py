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
