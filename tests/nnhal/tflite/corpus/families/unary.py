"""Functions of one tensor, element by element, and activations."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import QUANTIZED, models, tensor, with_constants

SHAPES: list[tuple[int, ...]] = [(), (7,), (2, 3), (2, 3, 4), (1, 4, 3, 2), (2, 1, 3, 2, 2)]
_UNIT_OUTPUTS = {"INT8": (1 / 256, -128), "UINT8": (1 / 256, 0), "INT16": (1 / 32768, 0)}
_SIGNED_OUTPUTS = {"INT8": (1 / 128, 0), "UINT8": (1 / 128, 128), "INT16": (1 / 32768, 0)}
_POSITIVE = ("LOG", "SQRT", "RSQRT")
_INPUT_SCALES = (0.004, 0.05, 0.3)


@models("ABS", "EXP", "FLOOR", "LOG", "NEG", "RSQRT", "SIN", "SQRT", "COS", "CEIL", "ROUND", "SQUARE", "SIGN")
def functions(name: str) -> Iterator[Op]:
    """Yield all types, ranks and some scales."""
    low, high = (0.01, 20) if name in _POSITIVE else (-10, 10)
    for shape in SHAPES:
        yield Op(name, [tensor("FLOAT32", *shape, low=low, high=high)], [tensor("FLOAT32")])
    for type_ in ("FLOAT16", "FLOAT64"):
        yield Op(name, [tensor(type_, 2, 3, low=low, high=high)], [tensor(type_)])
    for type_ in ("INT32", "INT64"):
        yield Op(name, [tensor(type_, 4, 3)], [tensor(type_)])
    for type_ in ("INT8", "UINT8", "INT16"):
        zero_point = 0 if type_ == "INT16" else -128 if type_ == "INT8" else 0
        for scale in _INPUT_SCALES:
            input_ = tensor(
                type_, 40, scale=scale, zero_point=zero_point, low=1 if type_ == "INT16" else None, high=None
            )
            yield Op(name, [input_], [tensor(type_, scale=0.1, zero_point=zero_point)])
        yield Op(name, [tensor(type_, 2, 3)], [tensor(type_)])
        yield Op(name, [tensor(type_, 2, 3, scale=0)], [tensor(type_, scale=0)])


@models("LOGISTIC", "TANH")
def curves(name: str) -> Iterator[Op]:
    """Yield all types and ranks, with the outputs' fixed scales and with others."""
    for shape in SHAPES:
        yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")])
    yield Op(name, [tensor("FLOAT16", 2, 3)], [tensor("FLOAT16")])
    for type_ in ("INT8", "UINT8", "INT16"):
        scale, zero_point = (_UNIT_OUTPUTS if name == "LOGISTIC" else _SIGNED_OUTPUTS)[type_]
        for input_scale in _INPUT_SCALES:
            yield Op(name, [tensor(type_, 300, scale=input_scale)], [tensor(type_, scale=scale, zero_point=zero_point)])
        yield Op(name, [tensor(type_, 2, 3)], [tensor(type_, scale=0.01)])


@models("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def rectifiers(name: str) -> Iterator[Op]:
    """Yield all types and ranks, and outputs of another scale."""
    for shape in SHAPES:
        yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")])
    yield Op(name, [tensor("FLOAT16", 2, 3)], [tensor("FLOAT16")])
    for type_ in ("INT8", "UINT8", "INT16"):
        yield Op(name, [tensor(type_, 300)], [tensor(type_)])
        yield Op(name, [tensor(type_, 300)], [tensor(type_, scale=0.02, zero_point=0)])
        yield Op(name, [tensor(type_, 2, 3)], [tensor(type_, scale=0.3)])


@models("HARD_SWISH", "ELU")
def smooth_rectifiers(name: str) -> Iterator[Op]:
    """Yield all types and ranks, and several scales."""
    for shape in SHAPES:
        yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")])
    yield Op(name, [tensor("FLOAT32", 500, low=-8, high=8)], [tensor("FLOAT32")])
    yield Op(name, [tensor("FLOAT16", 2, 3)], [tensor("FLOAT16")])
    for type_ in ("INT8", "UINT8", "INT16"):
        for input_, output in ((0.05, 0.05), (0.1, 0.02), (0.02, 0.07), (0.004, 0.004)):
            yield Op(name, [tensor(type_, 300, scale=input_)], [tensor(type_, scale=output)])


@models("GELU")
def gelu(name: str) -> Iterator[Op]:
    """Yield both forms with all types and ranks."""
    for approximate in (False, True):
        table = options("Gelu", approximate=approximate)
        for shape in SHAPES:
            yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")], table)
        yield Op(name, [tensor("FLOAT32", 500, low=-8, high=8)], [tensor("FLOAT32")], table)
        for type_ in QUANTIZED:
            yield Op(name, [tensor(type_, 300)], [tensor(type_)], table)
            yield Op(name, [tensor(type_, 300, scale=0.02)], [tensor(type_, scale=0.01, zero_point=0)], table)
        for type_ in ("FLOAT16", "INT16"):
            yield Op(name, [tensor(type_, 2, 3)], [tensor(type_)], table)


@models("PRELU")
def prelu(name: str) -> Iterator[Op]:
    """Yield all types, shapes of the slope, and constant slopes."""
    for type_ in ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT16"):
        for shape, slope in (
            ((1, 3, 3, 4), (1, 1, 4)),
            ((2, 3), (3,)),
            ((2, 3), (2, 3)),
            ((4,), (1,)),
            ((2, 3, 2, 1, 2), (2,)),
        ):
            op = Op(
                name,
                [tensor(type_, *shape), tensor(type_, *slope, scale=0.01 if type_ in QUANTIZED else None)],
                [tensor(type_)],
            )
            yield op
            yield with_constants(op, 1)
        yield with_constants(Op(name, [tensor(type_, 8, 3), tensor(type_, 3)], [tensor(type_, scale=0.2)]), 1)


@models("SOFTMAX", "LOG_SOFTMAX")
def softmax(name: str) -> Iterator[Op]:
    """Yield all types and ranks, and several factors."""
    betas = (1.0, 0.5, 2.5) if name == "SOFTMAX" else (1.0,)
    fixed = (
        _UNIT_OUTPUTS
        if name == "SOFTMAX"
        else {"INT8": (16 / 256, 127), "UINT8": (16 / 256, 255), "INT16": (16 / 65536, 0)}
    )
    for beta in betas:
        table = options("Softmax", beta=beta) if name == "SOFTMAX" else options("LogSoftmax")
        for shape in SHAPES[1:] if beta == 1 else [(2, 5), (7,)]:
            yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")], table)
        yield Op(name, [tensor("FLOAT16", 2, 3)], [tensor("FLOAT16")], table)
        for type_ in ("INT8", "UINT8", "INT16"):
            scale, zero_point = fixed[type_]
            for shape in [(2, 20), (7,), (1, 2, 3, 10), (2, 1, 3, 2, 4), (2, 3, 5)] if beta == 1 else [(2, 20)]:
                yield Op(name, [tensor(type_, *shape)], [tensor(type_, scale=scale, zero_point=zero_point)], table)
            yield Op(name, [tensor(type_, 2, 20)], [tensor(type_, scale=0.02)], table)
            yield Op(
                name, [tensor(type_, 2, 20, scale=0.3)], [tensor(type_, scale=scale, zero_point=zero_point)], table
            )
    if name == "SOFTMAX":
        yield Op(
            name,
            [tensor("INT8", 2, 20)],
            [tensor("INT16", scale=1 / 65536, zero_point=-32768)],
            options("Softmax", beta=1.0),
        )
