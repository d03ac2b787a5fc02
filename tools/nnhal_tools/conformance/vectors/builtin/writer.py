"""Builder of vectors, in the format of the vector files."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnhal.recording.tensor_difference import EXACT, HALF, TOLERANCES
from nnhal.types import DTYPES, AnyArray, OperandType
from nnhal_tools.conformance.vectors.case import BUILT_IN, Case


class CaseGraph:
    """Subgraph under construction. Each method that adds an operand returns its index."""

    def __init__(self) -> None:
        self.operands: list[dict[str, Any]] = []
        self.operations: list[dict[str, Any]] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def _add(self, type_: str, shape: Sequence[int], lifetime: str, scale: float, zero_point: int) -> int:
        operand = {"type": type_, "dimensions": list(shape), "scale": scale, "zero_point": zero_point}
        self.operands.append({**operand, "lifetime": lifetime})
        return len(self.operands) - 1

    def input(self, type_: str, shape: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0) -> int:
        """Add an input of the subgraph."""
        self.inputs.append(self._add(type_, shape, "SUBGRAPH_INPUT", scale, zero_point))
        return self.inputs[-1]

    def output(self, type_: str, shape: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0) -> int:
        """Add an output of the subgraph."""
        self.outputs.append(self._add(type_, shape, "SUBGRAPH_OUTPUT", scale, zero_point))
        return self.outputs[-1]

    def temporary(self, type_: str, shape: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0) -> int:
        """Add a temporary value between operations."""
        return self._add(type_, shape, "TEMPORARY_VARIABLE", scale, zero_point)

    def constant(
        self, type_: str, values: object, scale: float = 0.0, zero_point: int = 0, *, pooled: bool = False
    ) -> int:
        """Add a constant. `pooled`: in a pool instead of operandValues."""
        array = np.asarray(values, DTYPES[OperandType[type_]])
        lifetime = "CONSTANT_REFERENCE" if pooled else "CONSTANT_COPY"
        index = self._add(type_, array.shape, lifetime, scale, zero_point)
        self.operands[index]["data"] = encode_array(array)
        return index

    def per_channel(self, values: object, scales: Sequence[float], channel_dim: int = 0) -> int:
        """Add a constant TENSOR_QUANT8_SYMM_PER_CHANNEL."""
        index = self.constant("TENSOR_QUANT8_SYMM_PER_CHANNEL", values)
        self.operands[index]["channel_quant"] = {"scales": list(scales), "channel_dim": channel_dim}
        return index

    def int32(self, value: int) -> int:
        """Add a constant INT32 scalar."""
        return self.constant("INT32", value)

    def int32s(self, *values: int) -> list[int]:
        """Add constant INT32 scalars."""
        return [self.int32(value) for value in values]

    def float32(self, value: float) -> int:
        """Add a constant FLOAT32 scalar."""
        return self.constant("FLOAT32", value)

    def no_value(self, type_: str) -> int:
        """Add an operand without a value, for an argument that the model omits."""
        return self._add(type_, (0,) if type_.startswith("TENSOR_") else (), "NO_VALUE", 0.0, 0)

    def subgraph(self, number: int) -> int:
        """Add a reference to a referenced subgraph."""
        index = self._add("SUBGRAPH", (), "SUBGRAPH", 0.0, 0)
        self.operands[index]["subgraph"] = number
        return index

    def apply(self, operation: str, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add an operation."""
        self.operations.append({"type": operation, "inputs": list(inputs), "outputs": list(outputs)})

    def chain(
        self, type_: str, shape: Sequence[int], steps: Sequence[tuple[str, Sequence[int]]], scale: float = 0.0
    ) -> None:
        """Apply operations one after the other, from a new input to a new output, with values of one type and shape.

        `steps`: the operations, each with its inputs after the first.
        """
        value = self.input(type_, shape, scale)
        for number, (operation, inputs) in enumerate(steps, 1):
            add_operand = self.output if number == len(steps) else self.temporary
            result = add_operand(type_, shape, scale)
            self.apply(operation, [value, *inputs], [result])
            value = result

    def as_json(self) -> dict[str, Any]:
        """Return the subgraph in the format of the files."""
        return {
            "operands": self.operands,
            "operations": self.operations,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }


def make_case(
    name: str,
    main: CaseGraph,
    inputs: Sequence[object],
    outputs: Sequence[object],
    *,
    referenced: Sequence[CaseGraph] = (),
    ignored: Sequence[int] = (),
    relaxed: bool = False,
    expect_failure: bool = False,
) -> Case:
    """Return a vector.

    Args:
        name: the name, which is also that of its spec.
        main: the main subgraph.
        inputs: a value for each input; None to omit it.
        outputs: the expected value of each output.
        referenced: the referenced subgraphs.
        ignored: the indexes of outputs that are not compared.
        relaxed: whether float32 may be computed as float16.
        expect_failure: whether the execution must fail. Then `outputs` only define sizes.
    """
    data = {
        "name": name,
        "spec": f"{BUILT_IN}/{name}",
        "folder": BUILT_IN,
        "feature_level": "1.3",
        "expect_failure": expect_failure,
        "relaxed": relaxed,
        "model": {"main": main.as_json(), "referenced": [graph.as_json() for graph in referenced]},
        "inputs": [_value(main, i, value) for i, value in zip(main.inputs, inputs, strict=True)],
        "outputs": [_value(main, i, value) for i, value in zip(main.outputs, outputs, strict=True)],
    }
    for k, (i, output) in enumerate(zip(main.outputs, data["outputs"], strict=True)):  # type: ignore[call-overload]
        type_ = main.operands[i]["type"]
        atol, rtol = HALF if relaxed else TOLERANCES.get(type_, EXACT)
        output.update(ignored=k in ignored, atol=atol, rtol=rtol)
    return Case(data)


def _value(graph: CaseGraph, operand: int, value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    array = np.asarray(value, DTYPES[OperandType[graph.operands[operand]["type"]]])
    return {"dimensions": list(array.shape), "data": encode_array(array)}


def encode_array(array: AnyArray) -> str:
    """Return the bytes of an array in the format of the files."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
