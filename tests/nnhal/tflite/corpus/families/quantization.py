"""Conversions between types."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import SampledTensor, models, tensor, with_constants

_QUANTIZED = ("INT8", "UINT8", "INT16")
_CASTS = ("FLOAT32", "FLOAT16", "FLOAT64", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "BOOL")


def _output(type_: str, scale: float, zero_point: int) -> SampledTensor:
    offset = {"UINT8": 128 + zero_point, "INT16": 0, "INT32": 0}.get(type_, zero_point)
    return tensor(type_, scale=scale, zero_point=offset)


@models("QUANTIZE")
def quantize(name: str) -> Iterator[Op]:
    """Yield all pairs of types with several scales, ranks and channels."""
    for output in (*_QUANTIZED, "INT32"):
        for input_ in ("FLOAT32", *_QUANTIZED, "INT32"):
            for scale, zero_point in ((0.05, -7), (0.1, 3), (0.02, 0), (0.037, -100)):
                step = 0.001 if input_ == "INT32" else None
                yield Op(name, [tensor(input_, 400, scale=step)], [_output(output, scale, zero_point)])
            yield Op(name, [tensor(input_, 2, 3, 2, 2, 2, scale=0.2)], [_output(output, 0.3, 1)])
    for shape in ((), (2, 3), (1, 2, 3, 4)):
        yield Op(name, [tensor("FLOAT32", *shape)], [tensor("INT8")])
    yield Op(name, [tensor("FLOAT16", 2, 3)], [tensor("INT8")])
    yield Op(name, [tensor("FLOAT32", 4, 2)], [tensor("INT8", scale=(0.1, 0.2), zero_point=0, dimension=1)])
    yield Op(name, [tensor("INT8", 300, scale=0.5, zero_point=4)], [tensor("UINT8", scale=0.5, zero_point=132)])
    yield Op(name, [tensor("UINT8", 300, scale=0.5, zero_point=132)], [tensor("INT8", scale=0.5, zero_point=4)])
    yield with_constants(Op(name, [tensor("FLOAT32", 4)], [tensor("INT8")]), 0)


@models("DEQUANTIZE")
def dequantize(name: str) -> Iterator[Op]:
    """Yield all types with several scales, ranks and channels."""
    for type_ in (*_QUANTIZED, "FLOAT16", "INT32", "INT4"):
        if type_ == "INT4":
            continue
        for shape in ((), (7,), (2, 3), (1, 2, 3, 4), (1, 2, 3, 1, 2)):
            yield Op(name, [tensor(type_, *shape, scale=0.01 if type_ == "INT32" else None)], [tensor("FLOAT32")])
    for type_ in _QUANTIZED:
        yield Op(name, [tensor(type_, 300, scale=0.7, zero_point=0)], [tensor("FLOAT32")])
    for dimension in (0, 1):
        scale = (0.1, 0.2)
        yield Op(name, [tensor("INT8", 2, 2, scale=scale, zero_point=0, dimension=dimension)], [tensor("FLOAT32")])
    yield with_constants(Op(name, [tensor("FLOAT16", 4)], [tensor("FLOAT32")]), 0)


@models("CAST")
def cast(name: str) -> Iterator[Op]:
    """Yield all pairs of types, with values that the result cannot hold."""
    for input_ in (*_CASTS, "COMPLEX64"):
        for output in (*_CASTS, "COMPLEX64"):
            for scale in (0, None) if {input_, output} & set(_QUANTIZED) else (0,):
                low, high = (-20, 100) if input_.startswith("FLOAT") and output[0] != "U" else (None, None)
                if input_.startswith("FLOAT") and output[0] == "U":
                    low, high = 0, 100
                yield Op(
                    name,
                    [tensor(input_, 20, scale=scale, low=low, high=high)],
                    [tensor(output, scale=scale)],
                    options("Cast"),
                )
    for shape in ((), (2, 3), (1, 2, 3, 4), (1, 2, 3, 1, 2)):
        yield Op(name, [tensor("INT32", *shape)], [tensor("FLOAT32")], options("Cast"))
    yield Op(name, [tensor("INT64", 4, low=2**40, high=2**41)], [tensor("INT32")], options("Cast"))
    yield Op(name, [tensor("INT32", 4, low=2**24, high=2**30)], [tensor("FLOAT32")], options("Cast"))


@models("FAKE_QUANT")
def fake_quant(name: str) -> Iterator[Op]:
    """Yield several ranges and widths."""
    for low, high, bits, narrow in (
        (-1.0, 1.0, 8, False),
        (0.0, 6.0, 8, True),
        (-3.3, 2.1, 4, False),
        (0.1, 0.5, 8, False),
    ):
        table = options("FakeQuant", min=low, max=high, numBits=bits, narrowRange=narrow)
        yield Op(name, [tensor("FLOAT32", 20)], [tensor("FLOAT32")], table)
        yield Op(name, [tensor("FLOAT32", 2, 3, 2)], [tensor("FLOAT32")], table)
