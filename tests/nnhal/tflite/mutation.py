"""Mutations of `.tflite` files: of their bytes, and of the fields of their tables through the schema's object API.

A mutation is a function of a random generator and a ModelT. `mutate` applies a few of them. Values are chosen where
kernels and importers fail: around 0, at the limits of the types, and near the value that a valid file has.
"""

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.nnhal.tflite.build import pack, schema

Mutation = Callable[[random.Random, Any], None]

_TYPE_BYTES = {"FLOAT32": 4, "FLOAT16": 2, "INT32": 4, "UINT8": 1, "INT64": 8, "BOOL": 1, "INT16": 2, "INT8": 1}
_TYPES = [getattr(schema.TensorType, name) for name in _TYPE_BYTES]
_BYTES = {getattr(schema.TensorType, name): size for name, size in _TYPE_BYTES.items()}
_INTEGERS = (0, 1, -1, 2, 3, -2, 4, 7, 8, 31, 255, 256, 2**15, 2**16, 2**30, 2**31 - 1, -(2**31))
_SIZES = (1, 1, 2, 3, 4, 5, 8, 0, -1, 17, 255, 1024, 65536, 2**31 - 1)
_REALS = (0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 1e-10, 1e-3, 300.0, 1e10, 3e38, float("inf"), float("nan"))
_MAX_RANK = 9
_MAX_ELEMENTS = 100_000


def mutate(data: bytes, generator: random.Random) -> bytes:
    """Return a file with random changes."""
    if generator.random() < 0.15:
        return change_bytes(data, generator)
    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    for _ in range(generator.choice((1, 1, 1, 2, 3, 5))):
        generator.choice(MUTATIONS)(generator, model)
    try:
        return pack(model)
    except (TypeError, OverflowError, struct.error):  # a number does not fit its field
        return change_bytes(data, generator)


def change_bytes(data: bytes, generator: random.Random) -> bytes:
    """Return a file with other bytes, or truncated."""
    changed = bytearray(data)
    if generator.random() < 0.1:
        return bytes(changed[: generator.randrange(len(changed))])
    for _ in range(generator.choice((1, 1, 2, 8))):
        changed[generator.randrange(len(changed))] = generator.choice(
            (0, 1, 2, 127, 128, 255, generator.randrange(256))
        )
    return bytes(changed)


# ---- Choices --------------------------------------------------------------------------------------------


def _graph(generator: random.Random, model: Any) -> Any:
    return generator.choice(model.subgraphs)


def _tensor(generator: random.Random, model: Any) -> Any:
    return generator.choice(_graph(generator, model).tensors)


def _operator(generator: random.Random, model: Any) -> Any:
    return generator.choice(_graph(generator, model).operators)


def _integer(generator: random.Random, near: int) -> int:
    value = generator.choice((*_INTEGERS, near + 1, near - 1, near * 2, -near, near ^ (1 << generator.randrange(31))))
    return max(min(value, 2**31 - 1), -(2**31))


# ---- Tensors --------------------------------------------------------------------------------------------


def change_dimension(generator: random.Random, model: Any) -> None:
    """Change one dimension of a tensor."""
    tensor = _tensor(generator, model)
    shape = _shape(tensor)
    if shape:
        index = generator.randrange(len(shape))
        shape[index] = generator.choice((*_SIZES, shape[index] + 1, shape[index] - 1, shape[index] * 2))
    _set_shape(generator, model, tensor, shape)


def change_rank(generator: random.Random, model: Any) -> None:
    """Insert or remove dimensions, or give the tensor a new shape."""
    tensor = _tensor(generator, model)
    shape = _shape(tensor)
    match generator.randrange(4):
        case 0:
            shape.insert(generator.randrange(len(shape) + 1), generator.choice((1, 1, 2, 3)))
        case 1 if shape:
            shape.pop(generator.randrange(len(shape)))
        case 2:
            generator.shuffle(shape)
        case _:
            shape = [generator.choice((1, 2, 3)) for _ in range(generator.randrange(_MAX_RANK))]
    _set_shape(generator, model, tensor, shape)


def change_same_dimension(generator: random.Random, model: Any) -> None:
    """Change a dimension in every tensor that has the same one: batches, channels."""
    old = generator.choice([*_shape(_tensor(generator, model)), 1])
    new = generator.choice((1, 2, 3, 5, 8, 0, old + 1, old * 2))
    for tensor in _graph(generator, model).tensors:
        _set_shape(generator, model, tensor, [new if size == old else size for size in _shape(tensor)])


def change_type(generator: random.Random, model: Any) -> None:
    """Change the type of a tensor, or of all tensors of a type."""
    type_, graph = generator.choice((*_TYPES, generator.randrange(23))), _graph(generator, model)
    chosen = generator.choice(graph.tensors)
    every = generator.random() < 0.5
    for tensor in [each for each in graph.tensors if each.type == chosen.type] if every else [chosen]:
        tensor.type = type_
        _set_shape(generator, model, tensor, _shape(tensor))


def change_quantization(generator: random.Random, model: Any) -> None:
    """Change the scale, the zero point or the quantized dimension of a tensor, or remove or add them."""
    tensor = _tensor(generator, model)
    if tensor.quantization is None or generator.random() < 0.1:
        tensor.quantization = generator.choice((None, schema.QuantizationParametersT()))
        if tensor.quantization is not None:
            tensor.quantization.scale, tensor.quantization.zeroPoint = [generator.choice(_REALS)], [0]
        return
    quantization = tensor.quantization
    scales = [] if quantization.scale is None else list(quantization.scale)
    points = [] if quantization.zeroPoint is None else list(quantization.zeroPoint)
    match generator.randrange(6):
        case 0 | 1 if scales:
            scales[generator.randrange(len(scales))] = generator.choice((*_REALS, scales[0] * 2, scales[0] * 1e-3))
        case 2 if scales:
            factor = generator.choice((1e-9, 1e-4, 0.5, 2, 1e3, 1e8))
            scales = [min(scale * factor, 3e38) for scale in scales]
        case 3 if points:
            points[generator.randrange(len(points))] = generator.choice(
                (0, 1, -1, 127, -128, 255, 256, 2**31, -(2**63))
            )
        case 4:
            count = generator.choice((0, 1, 2, *_shape(tensor)[-1:]))
            count = min(max(count, 0), 1000)
            scales, points = [0.5] * count, [0] * generator.choice((count, count, count + 1))
        case _:
            quantization.quantizedDimension = generator.choice((0, 1, 2, 3, -1, 4, 2**31 - 1))
    quantization.scale, quantization.zeroPoint = scales, points


def change_flag(generator: random.Random, model: Any) -> None:
    """Change what a tensor is: a variable, a constant, or neither."""
    tensor = _tensor(generator, model)
    if generator.random() < 0.5:
        tensor.isVariable = not tensor.isVariable
    else:
        tensor.buffer = generator.choice((0, 1, len(model.buffers) - 1, len(model.buffers), 2**31))


def change_values(generator: random.Random, model: Any) -> None:
    """Change elements of a constant."""
    constants = [t for g in model.subgraphs for t in g.tensors if _is_constant(model, t) and t.type in _BYTES]
    if not constants:
        return
    tensor = generator.choice(constants)
    kinds = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}
    data = np.array(model.buffers[tensor.buffer].data, np.uint8)
    size = _BYTES[tensor.type]
    values = data[: len(data) // size * size].view(kinds[size])
    if not len(values):
        return
    limits = np.iinfo(values.dtype)
    for _ in range(generator.choice((1, 1, 2, 4))):
        index = generator.randrange(len(values))
        value = generator.choice((*_INTEGERS, int(values[index]) + 1, int(values[index]) - 1, int(limits.min)))
        values[index] = max(min(value, int(limits.max)), int(limits.min))
    model.buffers[tensor.buffer].data = data


def change_length(generator: random.Random, model: Any) -> None:
    """Change the length of a constant's buffer."""
    buffer = generator.choice(model.buffers)
    data = np.zeros(0, np.uint8) if buffer.data is None else np.array(buffer.data, np.uint8)
    buffer.data = np.resize(data, max(len(data) + generator.choice((-1, 1, -4, 4, -len(data), len(data))), 0))


def _shape(tensor: Any) -> list[int]:
    return [] if tensor.shape is None else [int(size) for size in tensor.shape]


def _is_constant(model: Any, tensor: Any) -> bool:
    return 0 < tensor.buffer < len(model.buffers) and model.buffers[tensor.buffer].data is not None


def _set_shape(generator: random.Random, model: Any, tensor: Any, shape: list[int]) -> None:
    """Set the shape. The bytes of a constant are usually changed to match."""
    tensor.shape = [min(max(size, -(2**31)), 2**31 - 1) for size in shape]
    elements = 1
    for size in shape:
        elements *= max(size, 0)
    if _is_constant(model, tensor) and elements <= _MAX_ELEMENTS and generator.random() < 0.9:
        buffer = schema.BufferT()
        buffer.data = np.resize(
            np.array(model.buffers[tensor.buffer].data, np.uint8), elements * _BYTES.get(tensor.type, 1)
        )
        tensor.buffer = len(model.buffers)
        model.buffers.append(buffer)


# ---- Operators ------------------------------------------------------------------------------------------


def change_option(generator: random.Random, model: Any) -> None:
    """Change a field of an operator's options."""
    options = _operator(generator, model).builtinOptions
    names = list(vars(options)) if options is not None else []
    if not names:
        return
    name = generator.choice(names)
    value = getattr(options, name)
    if isinstance(value, bool):
        setattr(options, name, not value)
    elif isinstance(value, float):
        setattr(options, name, generator.choice((*_REALS, -value, value * 2)))
    elif isinstance(value, int):
        small = name.lower().endswith(("padding", "function", "type", "mode", "format"))
        setattr(options, name, generator.randrange(-1, 24) if small else _integer(generator, value))
    else:
        setattr(options, name, [_integer(generator, 1) for _ in range(generator.randrange(10))])


def change_custom_options(generator: random.Random, model: Any) -> None:
    """Change a value in the options of a custom operator, or their bytes."""
    operator = _operator(generator, model)
    if operator.customOptions is None or not len(operator.customOptions):
        return
    data = bytes(operator.customOptions)
    try:
        values = flexbuffers.Loads(data)
    except Exception:  # the reader fails in many ways on bytes that were changed before
        values = None
    if generator.random() < 0.3 or not isinstance(values, dict) or not values:
        operator.customOptions = list(change_bytes(data, generator))
        return
    name = generator.choice(sorted(values))
    if generator.random() < 0.1:
        values.pop(name)
    elif isinstance(values[name], bool):
        values[name] = not values[name]
    elif isinstance(values[name], int):
        values[name] = _integer(generator, values[name])
    else:
        values[name] = generator.choice((*_REALS, 0.01, 0.99, -0.5))
    operator.customOptions = list(flexbuffers.Dumps(values))


def change_operand(generator: random.Random, model: Any) -> None:
    """Change, add or remove an input or output of an operator or of a subgraph."""
    graph = _graph(generator, model)
    owner = generator.choice((*graph.operators, *graph.operators, graph))
    name = generator.choice(("inputs", "inputs", "outputs"))
    value = getattr(owner, name)
    numbers = [] if value is None else [int(number) for number in value]
    number = generator.choice((-1, *range(len(graph.tensors)), len(graph.tensors), 2**31 - 1, -2))
    match generator.randrange(5):
        case 0 | 1 if numbers:
            numbers[generator.randrange(len(numbers))] = number
        case 2 if numbers:
            numbers.pop(generator.randrange(len(numbers)))
        case 3:
            generator.shuffle(numbers)
        case _:
            numbers.append(number)
    setattr(owner, name, numbers)


def change_operator(generator: random.Random, model: Any) -> None:
    """Change the kind of an operator, and what belongs to it."""
    code, operator = generator.choice(model.operatorCodes), _operator(generator, model)
    match generator.randrange(5):
        case 0 | 1:
            code.builtinCode = generator.choice((generator.randrange(210), generator.randrange(127)))
            code.deprecatedBuiltinCode = min(max(code.builtinCode, 0), 127)
        case 2:
            code.version = generator.choice((0, 1, 2, 3, 5, 100, -1))
        case 3:
            operator.opcodeIndex = generator.choice((0, len(model.operatorCodes), 2**31))
        case _:
            operator.builtinOptionsType = generator.choice((0, operator.builtinOptionsType))
            if not operator.builtinOptionsType:
                operator.builtinOptions = None


def repeat_operator(generator: random.Random, model: Any) -> None:
    """Repeat, remove or reorder operators."""
    operators = _graph(generator, model).operators
    match generator.randrange(3):
        case 0:
            operators.append(generator.choice(operators))
        case 1 if len(operators) > 1:
            operators.pop(generator.randrange(len(operators)))
        case _:
            generator.shuffle(operators)


MUTATIONS: list[Mutation] = [
    *[change_dimension] * 4,
    *[change_rank] * 2,
    *[change_same_dimension] * 4,
    *[change_type] * 2,
    *[change_quantization] * 4,
    change_flag,
    *[change_values] * 5,
    change_length,
    *[change_option] * 6,
    change_custom_options,
    *[change_operand] * 2,
    change_operator,
    repeat_operator,
]
"""The mutations, repeated by their probability."""
