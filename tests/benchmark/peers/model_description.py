"""Inputs and outputs of a .tflite file, as the protocol of the other servers names them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATATYPES = {"float32": "FP32", "int8": "INT8", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "bool": "BOOL"}
"""Names of types in the Open Inference Protocol, by numpy's."""


@dataclass(frozen=True)
class ProtocolTensor:
    """One input or output.

    Attributes:
        name: name in the protocol.
        datatype: type in the protocol.
        shape: shape.
    """

    name: str
    datatype: str
    shape: Sequence[int]


def describe(model: Path) -> tuple[list[ProtocolTensor], list[ProtocolTensor]]:
    """Return the inputs and the outputs of a model, named input_0, output_0 and so on."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model), num_threads=1)

    def described(kind: str, details: Sequence[dict[str, Any]]) -> list[ProtocolTensor]:
        return [
            ProtocolTensor(f"{kind}_{i}", DATATYPES[each["dtype"].__name__], [int(n) for n in each["shape"]])
            for i, each in enumerate(details)
        ]

    return (
        described("input", interpreter.get_input_details()),
        described("output", interpreter.get_output_details()),
    )
