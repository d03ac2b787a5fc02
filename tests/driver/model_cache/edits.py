"""Models to damage in the cache, and random edits of a data cache.

`python -m tests.driver.model_cache.edits BACKEND FIRST COUNT` applies COUNT edits from number FIRST on. It loads the
results without checking the digest, and executes each loaded model. The process must not crash or hang, and outputs
must have the declared size.
"""

import random
import sys

import numpy as np

from nnhal import ModelBuilder
from nnhal.types import AnyArray, CacheState, ErrorStatus, Model, Operand, SymmPerChannelQuantParams
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from tests.driver.model_cache.cache_files import KEY, Pair, contents, rewrite
from tests.driver.model_cache.preparation import load, save
from tests.driver.one_operation import execute, sample


def float_model(seed: int = 1) -> Model:
    """Return a convolution, a gather with constant indexes, a reshape and a fully connected layer."""
    rng = np.random.default_rng(seed)
    b = ModelBuilder()
    image = b.input(T.TENSOR_FLOAT32, [1, 8, 8, 1])
    weights, bias = rng.standard_normal((4, 3, 3, 1)).astype(np.float32), np.arange(4, dtype=np.float32)
    maps = b.add(Op.CONV_2D, image, weights, bias, 1, 1, 1, 1, output=Operand(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    rows = b.add(Op.GATHER, maps, 1, np.array([7, 0, 3], np.int32), output=Operand(T.TENSOR_FLOAT32, (1, 3, 8, 4)))
    flat = b.add(Op.RESHAPE, rows, [1, 96], output=Operand(T.TENSOR_FLOAT32, (1, 96)))
    matrix = rng.standard_normal((5, 96)).astype(np.float32)
    scores = Operand(T.TENSOR_FLOAT32, (1, 5))
    b.output(b.add(Op.FULLY_CONNECTED, flat, matrix, np.ones(5, np.float32), 0, output=scores))
    return b.build()


def quantized_model(seed: int = 1) -> Model:
    """Return a quantized convolution with a scale for each channel, and a mean over constant axes."""
    rng = np.random.default_rng(seed)
    b = ModelBuilder()
    image = b.input(T.TENSOR_QUANT8_ASYMM, [1, 6, 6, 2], scale=0.5, zero_point=3)
    weights = b.constant(
        rng.integers(-128, 127, (4, 3, 3, 2), np.int8),
        T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        channel_quant=SymmPerChannelQuantParams((0.1, 0.2, 0.3, 0.4), 0),
    )
    maps = Operand(T.TENSOR_QUANT8_ASYMM, (1, 6, 6, 4), 2.0, 128)
    convolved = b.add(Op.CONV_2D, image, weights, np.arange(4, dtype=np.int32), 1, 1, 1, 0, output=maps)
    means = Operand(T.TENSOR_QUANT8_ASYMM, (1, 4), 2.0, 128)
    b.output(b.add(Op.MEAN, convolved, [1, 2], 0, output=means))
    return b.build()


MODELS = {"CpuRef": quantized_model, "CpuAcc": float_model}
"""Model for the tests of each backend."""


def edit_randomly(data: bytes, other: bytes, seed: int) -> bytes:
    """Return data with flipped bits or an overwritten range, truncated, extended, or replaced by `other`."""
    rng = random.Random(seed)
    result = bytearray(data)
    offset = rng.randrange(len(data))
    match rng.randrange(8):
        case 0:
            return data[:offset]
        case 1:
            return data + rng.randbytes(rng.choice([1, 64, 5000]))
        case 2:
            return other
        case 3:
            piece = rng.choice([b"\0", b"\xff", b"\x7f\x80\0\0", rng.randbytes(7)]) * rng.randrange(1, 100)
            result[offset : offset + len(piece)] = piece[: len(data) - offset]
        case _:
            for _ in range(rng.choice([1, 1, 2, 50])):
                result[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(result)


class DamagedCache:
    """Saved model, and the data cache of another model of the same structure."""

    def __init__(self, device: Device, backend: str, pair: Pair) -> None:
        self.pair = pair
        create_model = MODELS[backend]
        save(device, create_model(2), pair.files())
        self.other = contents(pair.data)
        save(device, create_model(), pair.files())
        self.data = contents(pair.data)
        assert len(self.other) == len(self.data) and self.other != self.data

    def edit(self, seed: int) -> bool:
        """Apply an edit. Return whether the data differs from the original."""
        edited = edit_randomly(self.data, self.other, seed)
        rewrite(self.pair.data, lambda _: edited)
        return edited != self.data


def check_unchecked(backend: str, first: int, count: int) -> int:
    """Execute all edited models that load, and return their number."""
    device = Device("test", registry.create([backend]), DeviceOptions(cache=CacheOptions(KEY, check_data=False)))
    pair = Pair()
    damaged = DamagedCache(device, backend, pair)
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
