"""Encoding of parsed sub-models as flatbuffers, with nothing but what `parse` has read. CpuAcc copies the same."""

from typing import Any

import numpy as np

from nnhal_driver.backends.litert.submodel import SubModel, SubModelGraph, SubModelOperator, SubModelTensor
from tests.nnhal.tflite.build import pack, schema


def encode(model: SubModel, *, guarded: bool = False) -> bytes:
    """Return the flatbuffer of a sub-model.

    Args:
        model: the sub-model.
        guarded: whether to add inputs that nothing reads, as large as the tensors. The engine allocates tensors by
            size, one beside the other. So what is written or read out of bounds is often in such an input.
    """
    table = schema.ModelT(version=3, buffers=[schema.BufferT()], operatorCodes=[], subgraphs=[])
    for graph in model.graphs:
        table.subgraphs.append(_graph(table, graph))
    if guarded:
        _add_guards(table.subgraphs[0], model.main)
    return pack(table)


def _add_guards(table: Any, graph: SubModelGraph) -> None:
    sizes = {tensor.byte_size for tensor in graph.tensors if tensor.data is None}
    for size in sorted(sizes):
        for length in (size, size, max(size - 1, 1)):
            table.inputs.append(len(table.tensors))
            table.tensors.append(schema.TensorT(shape=[length], type=schema.TensorType.UINT8, hasRank=True))


def _graph(model: Any, graph: SubModelGraph) -> Any:
    table = schema.SubGraphT(inputs=list(graph.inputs), outputs=list(graph.outputs))
    table.tensors = [_tensor(model, tensor) for tensor in graph.tensors]
    table.operators = [_operator(model, operator) for operator in graph.operators]
    return table


def _tensor(model: Any, tensor: SubModelTensor) -> Any:
    table = schema.TensorT(shape=list(tensor.shape), type=getattr(schema.TensorType, tensor.type))
    table.hasRank, table.isVariable = True, tensor.is_variable
    if tensor.quantization is not None:
        table.quantization = schema.QuantizationParametersT(
            scale=tensor.quantization.scales.tolist(),
            zeroPoint=tensor.quantization.zero_points.tolist(),
            quantizedDimension=tensor.quantization.dimension,
        )
    if tensor.data is not None:
        table.buffer = len(model.buffers)
        model.buffers.append(schema.BufferT(data=np.array(tensor.data)))
    return table


def _operator(model: Any, operator: SubModelOperator) -> Any:
    builtin = getattr(schema.BuiltinOperator, operator.name)
    code = schema.OperatorCodeT(deprecatedBuiltinCode=min(builtin, 127), builtinCode=builtin, version=1)
    code.customCode = operator.custom_code or None
    table = schema.OperatorT(opcodeIndex=len(model.operatorCodes))
    model.operatorCodes.append(code)
    table.inputs, table.outputs = list(operator.inputs), list(operator.outputs)
    table.intermediates = list(operator.intermediates) or None
    if operator.options_type:
        table.builtinOptionsType = getattr(schema.BuiltinOptions, operator.options_type)
        table.builtinOptions = getattr(schema, f"{operator.options_type}T")(**object_api_fields(operator))
    if operator.custom_options is not None:
        table.customOptions = operator.custom_options.tobytes()
    return table


def object_api_fields(operator: SubModelOperator) -> dict[str, object]:
    """Return the options by their names in the schema's object API, for example `strideW`."""
    return {_object_api_name(name): value for name, value in operator.options.items()}


def _object_api_name(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(word.capitalize() for word in words)
