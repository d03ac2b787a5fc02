"""Custom operators that LiteRT's package has, on a device."""

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnhal.types import AnyArray
from tests.nnhal.tflite.build import Op, Tensor, build, pack, unpack
from tests.nnhal.tflite.comparisons.against_litert import assert_runs_as_in_litert
from tests.nnhal.tflite.comparisons.declared_shapes import DECLARATIONS, declare

SPECTRUM = {"window_size": 48, "stride": 20, "magnitude_squared": True}
CEPSTRUM: dict[str, float] = {
    **{"upper_frequency_limit": 4000.0, "lower_frequency_limit": 20.0},
    **{"filterbank_channel_count": 20, "dct_coefficient_count": 7},
}


def custom(name: str, table: bytes, inputs: Sequence[Tensor], *outputs: Tensor) -> bytes:
    """Return a model of one custom operator."""
    model = unpack(build(Op("CUSTOM", inputs, outputs, custom=name), inputs=inputs))
    model.subgraphs[0].operators[0].customOptions = list(table)
    return pack(model)


def window(padding: int) -> bytes:
    """Return the options of a window of 3 rows and 2 columns: those of TfLitePoolParams."""
    return struct.pack("<6i", padding, 2, 3, 2, 3, 0) + bytes(16)


def flexbuffer(table: Mapping[str, float]) -> bytes:
    return bytes(flexbuffers.Dumps(table))


def random(*shape: int) -> AnyArray:
    return np.random.default_rng(1).random(shape, np.float32)


MODELS = {
    "AudioSpectrogram": (
        custom("AudioSpectrogram", flexbuffer(SPECTRUM), [Tensor((200, 2))], Tensor((2, 8, 33))),
        [random(200, 2)],
    ),
    "Mfcc": (
        custom("Mfcc", flexbuffer(CEPSTRUM), [Tensor((2, 8, 33)), Tensor((1,), "INT32")], Tensor((2, 8, 7))),
        [random(2, 8, 33), np.array([16000], np.int32)],
    ),
    "NumericVerify": (
        custom(
            "NumericVerify",
            flexbuffer({"tolerance": 5.0, "log_if_failed": False}),
            [Tensor((2, 3), "INT8", scale=(0.5,), zero_point=(3,)), Tensor((2, 3))],
            Tensor((2, 3)),
        ),
        [np.arange(6, dtype=np.int8).reshape(2, 3), random(2, 3)],
    ),
    "MaxUnpooling2D": (
        custom("MaxUnpooling2D", window(2), [Tensor((1, 2, 2, 2)), Tensor((1, 2, 2, 2))], Tensor((1, 6, 4, 2))),
        [random(1, 2, 2, 2), np.zeros((1, 2, 2, 2), np.float32)],
    ),
    **{
        f"MaxPoolingWithArgmax2D {padding}": (
            custom("MaxPoolingWithArgmax2D", window(padding), [Tensor((1, 7, 5, 2))], Tensor(shape), Tensor(shape)),
            [random(1, 7, 5, 2)],
        )
        for padding, shape in ((1, (1, 3, 3, 2)), (2, (1, 2, 2, 2)))
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_operator_runs_as_in_litert(name: str) -> None:
    data, arrays = MODELS[name]
    assert_runs_as_in_litert(data, arrays, exact=True)


@pytest.mark.parametrize("declaration", DECLARATIONS)
@pytest.mark.parametrize("name", ["AudioSpectrogram", "Mfcc"])
def test_declared_shapes_do_not_count(name: str, declaration: str) -> None:
    data, arrays = MODELS[name]
    assert_runs_as_in_litert(declare(data, declaration), arrays, exact=True)
