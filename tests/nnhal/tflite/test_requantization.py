"""QUANTIZE from 8 bits to 8 bits: the emulation of LiteRT's arithmetic, and the scales at which NNAPI rounds alike."""

from itertools import product

import numpy as np
import pytest

from nnhal import tflite
from nnhal.tflite import TfliteError
from nnhal.types import AnyArray
from tests.nnhal.tflite.build import Op, Tensor, build, listing

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

SCALES = [0.0039, 0.01, 0.013, 0.02, 0.025, 0.05, 0.1, 0.25, 0.37, 1.0, 2.0]
INT8 = np.arange(-128, 128, dtype=np.int8)


def quantize(source: tuple[float, int], target: tuple[float, int], types: tuple[str, str] = ("INT8", "INT8")) -> bytes:
    tensors = [
        Tensor((256,), type_, scale=(scale,), zero_point=(zero_point,))
        for type_, (scale, zero_point) in zip(types, (source, target), strict=True)
    ]
    return build(Op("QUANTIZE", tensors[:1], tensors[1:]))


def run_litert(model: bytes) -> AnyArray:
    kernels = interpreter.Interpreter(
        model_content=model, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF
    )
    kernels.allocate_tensors()
    kernels.set_tensor(kernels.get_input_details()[0]["index"], INT8)
    kernels.invoke()
    result: AnyArray = kernels.get_tensor(kernels.get_output_details()[0]["index"])
    return result


@pytest.mark.parametrize("source, target", list(product(SCALES, SCALES)))
def test_emulation_equals_the_reference_kernel(source: float, target: float) -> None:
    from nnhal.tflite.operators.quantization import _requantized

    factor = float(np.float32(source)) / float(np.float32(target))
    emulated = np.clip(_requantized(INT8.astype(np.int64) + 7, factor) + 11, -128, 127)
    np.testing.assert_array_equal(emulated, run_litert(quantize((source, -7), (target, 11))))


@pytest.mark.parametrize(
    "source, target, types",
    [
        ((0.5, 4), (0.5, 4), ("INT8", "INT8")),
        ((0.5, 4), (0.5, 132), ("INT8", "UINT8")),
        ((0.3, 128), (0.3, 0), ("UINT8", "INT8")),
        ((0.2, 0), (0.1, 3), ("INT8", "INT8")),
    ],
)
def test_two_operations_replace_it_where_they_round_alike(
    source: tuple[float, int], target: tuple[float, int], types: tuple[str, str]
) -> None:
    model = tflite.parse(quantize(source, target, types), extension=False)
    assert [line.split()[0] for line in listing(model)] == ["DEQUANTIZE", "QUANTIZE"]


@pytest.mark.parametrize("source, target", [((0.05, -7), (0.1, 3)), ((0.01, 0), (0.37, 0))])
def test_other_scales_are_refused(source: tuple[float, int], target: tuple[float, int]) -> None:
    with pytest.raises(TfliteError, match="stored values otherwise"):
        tflite.parse(quantize(source, target), extension=False)
