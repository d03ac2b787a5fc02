"""LiteRT's plain reference kernels, as an independent implementation to compare with: models of one operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from nnhal.types import AnyArray, Operand, SymmPerChannelQuantParams
from nnhal.types import OperandType as T

_TYPES = {
    T.TENSOR_FLOAT32: "FLOAT32",
    T.TENSOR_FLOAT16: "FLOAT16",
    T.TENSOR_INT32: "INT32",
    T.TENSOR_BOOL8: "BOOL",
    T.TENSOR_QUANT8_ASYMM: "UINT8",
    T.TENSOR_QUANT8_ASYMM_SIGNED: "INT8",
    T.TENSOR_QUANT8_SYMM: "INT8",
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL: "INT8",
    T.TENSOR_QUANT16_SYMM: "INT16",
}


@dataclass(frozen=True)
class State:
    """The value of an input that TFLite keeps from run to run: a variable tensor, set before the run."""

    value: AnyArray


Input = tuple[Operand, AnyArray | State] | None
"""An input and its value; None for one that is omitted."""


def schema() -> ModuleType:
    """Return the schema's object API; the test is skipped where LiteRT is not installed."""
    module: ModuleType = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="LiteRT is not installed")
    return module


def litert(
    operator: str,
    options: Any,
    inputs: Sequence[Input],
    outputs: Sequence[Operand],
    intermediates: Sequence[Operand] = (),
) -> list[AnyArray]:
    """Run one TFLite operator on LiteRT's reference kernels.

    Args:
        operator: name in BuiltinOperator, or the name of a custom operator.
        options: an options table of the object API, e.g. Conv2DOptionsT, or None; bytes for a custom operator.
        inputs: operands with their values. All but the first and states are constants of the model, as most kernels
            expect.
        outputs: operands of the outputs.
        intermediates: operands that only say how values inside the operator are quantized.

    Returns:
        The outputs, then the states after the run.
    """
    interpreter_module = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    interpreter = interpreter_module.Interpreter(
        model_content=flatbuffer(operator, options, inputs, outputs, intermediates),
        experimental_op_resolver_type=interpreter_module.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    states = {i: each[1].value for i, each in enumerate(inputs) if each is not None and isinstance(each[1], State)}
    assert inputs[0] is not None, "the first input is the model's"
    for i, value in {0: inputs[0][1], **states}.items():
        interpreter.set_tensor(i, np.asarray(value))
    interpreter.invoke()
    outputs_at = [detail["index"] for detail in interpreter.get_output_details()]
    return [interpreter.get_tensor(i) for i in (*outputs_at, *states)]


def flatbuffer(
    operator: str,
    options: Any,
    inputs: Sequence[Input],
    outputs: Sequence[Operand],
    intermediates: Sequence[Operand] = (),
) -> bytes:
    """Return a .tflite model of one operator; its first input is the model's."""
    import flatbuffers

    s = schema()
    custom = isinstance(options, bytes)
    code = s.BuiltinOperator.CUSTOM if custom else getattr(s.BuiltinOperator, operator)
    model, graph, kind = s.ModelT(), s.SubGraphT(), s.OperatorCodeT()
    kind.builtinCode, kind.deprecatedBuiltinCode, kind.version = code, min(code, 127), 1
    kind.customCode = operator if custom else None
    model.version, model.operatorCodes, model.buffers, model.subgraphs = 3, [kind], [s.BufferT()], [graph]
    graph.tensors = []
    omitted = Operand(T.TENSOR_FLOAT32, (1,))
    for i, each in enumerate([*inputs, *((output, None) for output in (*outputs, *intermediates))]):
        operand, value = each or (omitted, None)
        buffer = s.BufferT()
        if i > 0 and value is not None and not isinstance(value, State):
            buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        model.buffers.append(buffer)
        graph.tensors.append(_tensor(s, operand, i + 1))
        graph.tensors[-1].isVariable = isinstance(value, State)
    call = s.OperatorT()
    call.inputs = [-1 if each is None else i for i, each in enumerate(inputs)]
    call.outputs = list(range(len(inputs), len(inputs) + len(outputs)))
    call.intermediates = list(range(len(inputs) + len(outputs), len(graph.tensors)))
    if custom:
        call.customOptions = np.frombuffer(options, np.uint8)
    elif options is not None:
        call.builtinOptions = options
        call.builtinOptionsType = getattr(s.BuiltinOptions, type(options).__name__.removesuffix("T"))
    graph.operators, graph.inputs, graph.outputs = [call], [0], call.outputs
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(s: ModuleType, operand: Operand, buffer: int) -> Any:
    tensor = s.TensorT()
    tensor.shape, tensor.buffer, tensor.type = (
        list(operand.dimensions),
        buffer,
        getattr(s.TensorType, _TYPES[T(operand.type)]),
    )
    params = operand.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        tensor.quantization = s.QuantizationParametersT()
        tensor.quantization.scale = list(params.scales)
        tensor.quantization.zeroPoint = [0] * len(params.scales)
        tensor.quantization.quantizedDimension = params.channel_dim
    elif operand.scale:
        tensor.quantization = s.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [operand.scale], [operand.zero_point]
    return tensor
