"""Two models to be damaged in the cache, and random edits of a data cache.

python -m tests.driver.caching.edits BACKEND FIRST COUNT runs the edits FIRST.. without the check of the digest, and
executes whatever is loaded: in a process of its own, which may not crash, hang or give outputs of another size.
"""

import random
import sys

import numpy as np

from driver.backends import registry
from driver.device import Device
from nnhal import ModelBuilder
from nnhal.types import AnyArray, CacheState, ErrorStatus, Model, Operand, SymmPerChannelQuantParams
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.caching.pair import KEY, Pair, contents, rewrite
from tests.driver.caching.test_device import load, save
from tests.driver.one_operation import execute, sample


def floats(seed: int = 1) -> Model:
    """A convolution, a gather with constant indexes, a reshape, a matrix."""
    rng = np.random.default_rng(seed)
    b = ModelBuilder()
    image = b.input(T.TENSOR_FLOAT32, [1, 8, 8, 1])
    weights, bias = rng.standard_normal((4, 3, 3, 1)).astype(np.float32), np.arange(4, dtype=np.float32)
    maps = b.add(Op.CONV_2D, image, weights, bias, 1, 1, 1, 1, output=Operand(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    some = b.add(Op.GATHER, maps, 1, np.array([7, 0, 3], np.int32), output=Operand(T.TENSOR_FLOAT32, (1, 3, 8, 4)))
    flat = b.add(Op.RESHAPE, some, [1, 96], output=Operand(T.TENSOR_FLOAT32, (1, 96)))
    matrix = rng.standard_normal((5, 96)).astype(np.float32)
    scores = Operand(T.TENSOR_FLOAT32, (1, 5))
    b.output(b.add(Op.FULLY_CONNECTED, flat, matrix, np.ones(5, np.float32), 0, output=scores))
    return b.build()


def bytes_(seed: int = 1) -> Model:
    """A quantised convolution, with a scale for each channel, and a mean over constant axes."""
    rng = np.random.default_rng(seed)
    b = ModelBuilder()
    image = b.input(T.TENSOR_QUANT8_ASYMM, [1, 6, 6, 2], scale=0.5, zero_point=3)
    weights = b.constant(
        rng.integers(-128, 127, (4, 3, 3, 2), np.int8),
        T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        channel_quant=SymmPerChannelQuantParams((0.1, 0.2, 0.3, 0.4), 0),
    )
    maps = Operand(T.TENSOR_QUANT8_ASYMM, (1, 6, 6, 4), 2.0, 128)
    made = b.add(Op.CONV_2D, image, weights, np.arange(4, dtype=np.int32), 1, 1, 1, 0, output=maps)
    means = Operand(T.TENSOR_QUANT8_ASYMM, (1, 4), 2.0, 128)
    b.output(b.add(Op.MEAN, made, [1, 2], 0, output=means))
    return b.build()


MODELS = {"CpuRef": bytes_, "CpuAcc": floats}
"""The one that each backend is tried with."""


def edited(held: bytes, other: bytes, seed: int) -> bytes:
    """A random edit: bits flipped, a piece overwritten, truncated, extended, or another model's instead."""
    rng = random.Random(seed)
    made = bytearray(held)
    at = rng.randrange(len(held))
    match rng.randrange(8):
        case 0:
            return held[:at]
        case 1:
            return held + rng.randbytes(rng.choice([1, 64, 5000]))
        case 2:
            return other
        case 3:
            piece = rng.choice([b"\0", b"\xff", b"\x7f\x80\0\0", rng.randbytes(7)]) * rng.randrange(1, 100)
            made[at : at + len(piece)] = piece[: len(held) - at]
        case _:
            for _ in range(rng.choice([1, 1, 2, 50])):
                made[rng.randrange(len(held))] ^= 1 << rng.randrange(8)
    return bytes(made)


class Damaged:
    """A saved model, and the data cache of another of the same form."""

    def __init__(self, device: Device, backend: str, pair: Pair) -> None:
        self.pair = pair
        make = MODELS[backend]
        save(device, make(2), pair.files())
        self.other = contents(pair.data)
        save(device, make(), pair.files())
        self.held = contents(pair.data)
        assert len(self.other) == len(self.held) and self.other != self.held

    def edit(self, seed: int) -> bool:
        """Makes an edit; gives whether anything is different."""
        made = edited(self.held, self.other, seed)
        rewrite(self.pair.data, lambda _: made)
        return made != self.held


def check_unchecked(backend: str, first: int, count: int) -> int:
    """Edits that nobody notices, and what comes of them; gives how many were executed."""
    device = Device("test", registry.create([backend]), cache_key=KEY, check_cached_data=False)
    pair = Pair()
    damaged = Damaged(device, backend, pair)
    executed = 0
    inputs: list[AnyArray] = []
    for seed in range(first, first + count):
        damaged.edit(seed)
        outcome = load(device, pair.files())
        if outcome.prepared_model is None:
            assert (outcome.status, outcome.cache.state) == (ErrorStatus.GENERAL_FAILURE, CacheState.MISS)
            continue
        inputs = inputs or [sample(np.random.default_rng(7), operand) for operand in outcome.prepared_model.inputs]
        result, outputs = execute(outcome, inputs)
        shapes = [operand.dimensions for operand in outcome.prepared_model.outputs]
        assert [output.shape for output in outputs] == shapes and result.output_sufficient_size, seed
        executed += 1
    pair.close()
    device.close()
    return executed


if __name__ == "__main__":
    print("executed", check_unchecked(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
