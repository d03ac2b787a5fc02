"""A model with constants, and models that differ from it in one thing each."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nnhal import ModelBuilder
from nnhal.types import (
    DataLocation,
    ExtensionNameAndPrefix,
    Memory,
    Model,
    Operand,
    Operation,
    SymmPerChannelQuantParams,
    UnsetUnion,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op

WEIGHTS = np.arange(600_000, dtype=np.float32)


def model(weights: np.ndarray[tuple[int], np.dtype[np.float32]] = WEIGHTS) -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [weights.size])
    b.output(b.add(Op.ADD, x, weights, 0, output=x.description))
    built = b.build()
    pools = (Memory.of(weights), Memory.of(np.ones(8, np.uint8)))
    return replace(built, pools=pools, operand_values=bytes(12))


def operand(change: Callable[[Operand], Operand]) -> Callable[[Model], Model]:
    def change_first(model: Model) -> Model:
        first, *rest = model.main.operands
        return replace(model, main=replace(model.main, operands=(change(first), *rest)))

    return change_first


CHANGES: dict[str, Callable[[Model], Model]] = {
    "type": operand(lambda o: replace(o, type=T.TENSOR_FLOAT16)),
    "dimensions": operand(lambda o: replace(o, dimensions=(600_000, 1))),
    "scale": operand(lambda o: replace(o, scale=0.5)),
    "zero point": operand(lambda o: replace(o, zero_point=1)),
    "lifetime": operand(lambda o: replace(o, lifetime=0)),
    "location": operand(lambda o: replace(o, location=DataLocation(0, 0, 0, 4))),
    "extra": operand(lambda o: replace(o, extra_params=SymmPerChannelQuantParams((1.0,), 0))),
    "no extra": operand(lambda o: replace(o, extra_params=UnsetUnion())),
    "operation": lambda m: replace(m, main=replace(m.main, operations=(Operation(Op.SUB, *_io_indexes(m)),))),
    "no operations": lambda m: replace(m, main=replace(m.main, operations=())),
    "inputs": lambda m: replace(m, main=replace(m.main, input_indexes=(1,))),
    "outputs": lambda m: replace(m, main=replace(m.main, output_indexes=(0,))),
    "referenced": lambda m: replace(m, referenced=(m.main,)),
    "a value": lambda m: replace(m, operand_values=bytes(11) + b"\1"),
    "values": lambda m: replace(m, operand_values=bytes(13)),
    "a byte of a pool": lambda m: replace(m, pools=(_flipped(m.pools[0]), m.pools[1])),
    "order of pools": lambda m: replace(m, pools=m.pools[::-1]),
    "a pool less": lambda m: replace(m, pools=m.pools[:1]),
    "a pool unset": lambda m: replace(m, pools=(m.pools[0], UnsetUnion())),
    "relaxed": lambda m: replace(m, relax_computation_float32_to_float16=True),
    "extensions": lambda m: replace(m, extension_name_to_prefix=(ExtensionNameAndPrefix("com.example", 1),)),
}


def _io_indexes(model: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (operation,) = model.main.operations
    return operation.inputs, operation.outputs


def _flipped(pool: Memory | UnsetUnion) -> Memory:
    assert isinstance(pool, Memory)
    copy = pool.view.copy()
    copy[-1] ^= 1
    return Memory.of(copy)
