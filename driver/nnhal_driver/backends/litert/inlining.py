"""Lowering of SUBMODEL, the operation of the LiteRT extension: its operators are copied into the TFLite model.

So an operation of NNAPI and its neighbors in a sub-model are optimized and executed together.
"""

from typing import Any

import numpy as np

from nnhal import litert_extension
from nnhal.tflite_schema.packing import PackedOperator, Quantization, TensorSpec
from nnhal_driver.backends.litert.lowering import Network, spec_of
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.backends.litert.submodel import (
    InvalidSubModel,
    SubModel,
    SubModelTensor,
    check_kernels,
    has_static_shapes,
    parse,
)
from nnhal_driver.graph import Graph, OperationView

_TYPE_MASK = 0xFFFF


def is_submodel(view: OperationView) -> bool:
    """Return whether an operation is SUBMODEL."""
    return view.extension == litert_extension.NAME and view.type & _TYPE_MASK == litert_extension.SUBMODEL


def element_dtype(graph: Graph, operand: int) -> np.dtype[Any] | None:
    """Return the type of the elements of an operand of a type of the extension, or None for other types."""
    type_ = graph.operands[operand].type
    is_own = graph.extension(type_) == litert_extension.NAME
    return litert_extension.ELEMENT_TYPES.get(type_ & _TYPE_MASK) if is_own else None


def submodel_of(view: OperationView) -> SubModel:
    """Return the sub-model of an operation. The graph caches it.

    Raises:
        Unsupported: the sub-model is damaged, does not match the operands, or LiteRT computes it wrongly.
    """
    key = (submodel_of, view.index)
    cached = view.graph.annotations.get(key)
    if cached is None:
        try:
            cached = _read(view)
        except Unsupported as error:
            cached = error
        view.graph.annotations[key] = cached
    if isinstance(cached, Unsupported):
        raise cached
    assert isinstance(cached, SubModel)
    return cached


def _read(view: OperationView) -> SubModel:
    first, *inputs = view.operation.inputs or (-1,)
    data = view.graph.constants.get(first)
    if data is None:
        raise Unsupported("the sub-model is not constant")
    try:
        model = parse(data)
        check_kernels(model)
    except InvalidSubModel as error:
        raise Unsupported(f"invalid sub-model: {error}") from None
    for kind, operands, tensors in (
        ("input", inputs, model.inputs),
        ("output", view.operation.outputs, model.outputs),
    ):
        if len(operands) != len(tensors):
            raise Unsupported(f"the sub-model has {len(tensors)} {kind}s, the operation has {len(operands)}")
        for i, (operand, tensor) in enumerate(zip(operands, tensors, strict=True)):
            declared = view.graph.operands[operand]
            dtype = element_dtype(view.graph, operand)
            type_ = spec_of(declared).type if dtype is None else dtype.name.upper()
            if type_ != tensor.type:
                raise Unsupported(f"{kind} {i} is {type_}; the sub-model has {tensor.type}")
    return model


def runs_alone(view: OperationView) -> bool:
    """Return whether a SUBMODEL needs an interpreter of its own: its shapes are not those of its operands, or unknown.

    Raises:
        Unsupported: see `submodel_of`.
    """
    key = (runs_alone, view.index)
    cached = view.graph.annotations.get(key)
    if cached is None:
        model = submodel_of(view)
        operands = (*view.operation.inputs[1:], *view.operation.outputs)
        shapes = [view.graph.operands[o].dimensions for o in operands]
        expected = [tensor.shape or (1,) for tensor in (*model.inputs, *model.outputs)]
        cached = view.graph.annotations[key] = shapes != expected or not has_static_shapes(model)
    return bool(cached)


def inline(network: Network, view: OperationView) -> None:
    """Add the operators of a SUBMODEL that does not run alone. Raises as `submodel_of`."""
    model = submodel_of(view)
    graph, writer = model.main, network.writer
    numbers: dict[int, int] = {}
    for operand, tensor in zip(view.operation.inputs[1:], graph.inputs, strict=True):
        numbers[tensor] = _input_tensor(network, view, operand, graph.tensors[tensor])
    for i, described in enumerate(graph.tensors):
        if i in numbers:
            continue
        if described.data is not None:
            numbers[i] = writer.constant(_spec(described), described.shape, described.values())
        else:
            numbers[i] = writer.tensor(_spec(described), described.shape, is_variable=described.is_variable)
    for operator in graph.operators:
        inputs = tuple(numbers[i] if i >= 0 else -1 for i in operator.inputs)
        outputs = tuple(numbers[i] for i in operator.outputs)
        if operator.custom_code:
            options = b"" if operator.custom_options is None else operator.custom_options.tobytes()
            writer.add(PackedOperator("CUSTOM", inputs, outputs, "", {}, (), operator.custom_code, options))
        else:
            table = operator.options_type, operator.options, tuple(numbers[i] for i in operator.intermediates)
            writer.add(PackedOperator(operator.name, inputs, outputs, *table, version=operator.version))
    for operand, tensor in zip(view.operation.outputs, graph.outputs, strict=True):
        _add_output(network, operand, numbers[tensor])


def _spec(tensor: SubModelTensor) -> TensorSpec:
    quantization = tensor.quantization
    if quantization is None:
        return TensorSpec(tensor.type)
    scales, zero_points = tuple(quantization.scales.tolist()), tuple(quantization.zero_points.tolist())
    return TensorSpec(tensor.type, Quantization(scales, zero_points, quantization.dimension))


def _input_tensor(network: Network, view: OperationView, operand: int, tensor: SubModelTensor) -> int:
    """Return the tensor of an input: the operand's, without its dimension if the sub-model has a scalar."""
    if operand not in network.tensors:
        declared = view.graph.operands[operand]
        if operand not in network.constants:
            network.tensors[operand] = network.writer.tensor(_spec(tensor), declared.dimensions)
        elif view.graph.extension(declared.type) == litert_extension.NAME:
            raise Unsupported("a constant of a type of the extension is not part of the sub-model")
        else:
            network.tensor(operand, declared)
    number = network.tensors[operand]
    if tensor.shape:
        return number
    scalar = network.writer.tensor(_spec(tensor), ())
    network.writer.operator("SQUEEZE", [number], [scalar], "SqueezeOptions", {"squeeze_dims": [0]})
    return scalar


def _add_output(network: Network, operand: int, number: int) -> None:
    """Make a tensor the tensor of an output operand. A scalar gets the operand's dimension."""
    writer = network.writer
    if operand not in network.tensors and writer.shapes[number]:
        network.tensors[operand] = number
        return
    if operand not in network.tensors:
        network.tensors[operand] = writer.tensor(writer.specs[number], (1,))
    target = network.tensors[operand]
    writer.operator("RESHAPE", [number], [target], "ReshapeOptions", {"new_shape": list(writer.shapes[target])})
