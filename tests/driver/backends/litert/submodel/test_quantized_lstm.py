"""An LSTM in 8 bits, which NNAPI lacks: a region of the extension with variables and intermediates."""

from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.types import AnyArray
from tests.driver.one_operation import device, execute, prepare
from tests.nnhal.tflite.build import pack, schema

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
BATCHES, STEPS, DEPTH, CELLS = 1, 7, 3, 4
HIDDEN = (1 / 128, -1)


class LstmFile:
    """A file with one LSTM. `tensors` can be changed before `data` is called."""

    def __init__(self) -> None:
        random = np.random.default_rng(4)
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.buffers, self.graph.tensors = 3, [schema.BufferT()], []
        self.input = self.add((BATCHES, STEPS, DEPTH), "INT8", (0.02, 3))
        weights = [random.integers(-127, 128, (CELLS, DEPTH)).astype(np.int8) for _ in range(4)]
        recurrent = [random.integers(-127, 128, (CELLS, CELLS)).astype(np.int8) for _ in range(4)]
        self.weights = [self.add(value.shape, "INT8", (0.01, 0), value) for value in (*weights, *recurrent)]
        biases = [random.integers(-500, 500, CELLS).astype(np.int32) for _ in range(4)]
        biases_ = [self.add((CELLS,), "INT32", (0.0002, 0), value) for value in biases]
        hidden = self.add((BATCHES, CELLS), "INT8", HIDDEN, variable=True)
        self.cells = self.add((BATCHES, CELLS), "INT16", (2.0**-11, 0), variable=True)
        output = self.add((BATCHES, STEPS, CELLS), "INT8", HIDDEN)
        gates = [self.add((), "INT16", (2.0**-12, 0)) for _ in range(4)]
        self.intermediates = [*gates, self.add((), "INT8", HIDDEN)]
        self.operator = schema.OperatorT()
        self.operator.inputs = [
            *(self.input, *self.weights, -1, -1, -1, *biases_, -1, -1, hidden, self.cells),
            *(-1, -1, -1, -1),
        ]
        self.operator.outputs, self.operator.intermediates = [output], self.intermediates
        self.operator.builtinOptionsType = schema.BuiltinOptions.UnidirectionalSequenceLSTMOptions
        self.operator.builtinOptions = schema.UnidirectionalSequenceLSTMOptionsT(
            fusedActivationFunction=schema.ActivationFunctionType.TANH, cellClip=10.0
        )
        self.graph.operators, self.graph.inputs, self.graph.outputs = [self.operator], [self.input], [output]
        code = schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM
        self.model.operatorCodes = [schema.OperatorCodeT(builtinCode=code, deprecatedBuiltinCode=code, version=2)]
        self.model.subgraphs = [self.graph]

    def add(
        self,
        shape: tuple[int, ...],
        type_: str,
        quantization: tuple[float, int],
        value: AnyArray | None = None,
        variable: bool = False,
    ) -> int:
        """Add a tensor and return its number."""
        scale, zero_point = quantization
        table: Any = schema.TensorT(shape=list(shape), type=getattr(schema.TensorType, type_), isVariable=variable)
        table.quantization = schema.QuantizationParametersT(scale=[scale], zeroPoint=[zero_point])
        if value is not None:
            table.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT(data=value.reshape(-1).view(np.uint8)))
        self.graph.tensors.append(table)
        return len(self.graph.tensors) - 1

    def data(self) -> bytes:
        """Return the bytes of the file."""
        return pack(self.model)


def test_result_is_that_of_litert_from_the_initial_state() -> None:
    data = LstmFile().data()
    x = np.random.default_rng(1).integers(-128, 128, (BATCHES, STEPS, DEPTH)).astype(np.int8)
    engine = interpreter.Interpreter(model_content=data)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    expected = engine.get_tensor(engine.get_output_details()[0]["index"])
    assert len(np.unique(expected)) > 4
    prepared = prepare(tflite.parse(data), device("CpuAcc"))
    for _ in range(3):
        np.testing.assert_array_equal(execute(prepared, [x])[1][0], expected)
