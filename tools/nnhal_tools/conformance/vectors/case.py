"""Test vectors: AOSP's models with inputs and expected outputs, as gzip-compressed JSON lines.

`read_cases` yields the cases of a folder. `Case.model` converts a case to the contract's message (checklist 3.2).
"""

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnhal.types import DTYPES, AnyArray, OperandLifeTime, OperandType
from nnhal.v1 import enums_pb2, types_pb2

CONSTANT_ALIGNMENT = 4
"""Alignment of constants in AOSP's harness, in bytes."""


@dataclass(frozen=True)
class ExpectedOutput:
    """Expected output of a case, with absolute and relative tolerance. The values of an ignored one are not compared.

    `array` has the dtype of the operand type, and is empty if a dimension is 0.
    """

    type: int
    array: AnyArray
    ignored: bool
    atol: float
    rtol: float


BUILT_IN = "builtin"
"""Folder of the built-in set in the specs of its vectors."""


@dataclass(frozen=True)
class Case:
    """Test vector. `data`: the JSON object; the description of the vectors explains its keys."""

    data: dict[str, Any]

    @property
    def name(self) -> str:
        """AOSP's name of the test, which is unique over all files."""
        return str(self.data["name"])

    @property
    def spec(self) -> str:
        """The path of the file without its suffix."""
        return str(self.data["spec"])

    @property
    def is_built_in(self) -> bool:
        """True for a vector of the built-in set."""
        return self.spec.startswith(f"{BUILT_IN}/")

    @property
    def expect_failure(self) -> bool:
        """True if building, preparing or executing the model must fail."""
        return bool(self.data["expect_failure"])

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """The names of all operations, those of main first."""
        return tuple(o["type"] for graph in self.graphs for o in graph["operations"])

    @property
    def main_operations(self) -> tuple[str, ...]:
        """The names of the operations of main."""
        return tuple(o["type"] for o in self.data["model"]["main"]["operations"])

    @property
    def is_endless_loop(self) -> bool:
        """True for a WHILE that never ends. It must be prepared, and the loop timeout must end it."""
        return self.expect_failure and self.main_operations[0] == "WHILE"

    @property
    def is_variant(self) -> bool:
        """True for a variant that differs only in the source of its tensors. VALMODEL and VALREQ leave these out."""
        return "inputs_as_internal" in self.name or "all_tensors_as_inputs" in self.name

    @property
    def multinomial_tolerance(self) -> float | None:
        """The tolerance of class frequencies, for random outputs."""
        return self.data.get("multinomial_tolerance")

    @property
    def operand_types(self) -> tuple[str, ...]:
        """The types of the operands of main."""
        return tuple(operand["type"] for operand in self.data["model"]["main"]["operands"])

    @property
    def graphs(self) -> list[dict[str, Any]]:
        """Main, and then the referenced subgraphs."""
        return [self.data["model"]["main"], *self.data["model"]["referenced"]]

    def _main_operands(self, key: str) -> list[dict[str, Any]]:
        main = self.data["model"]["main"]
        return [main["operands"][i] for i in main[key]]

    @cached_property
    def inputs(self) -> list[AnyArray | None]:
        """An array for each input of main; None for an omitted one."""
        pairs = zip(self._main_operands("inputs"), self.data["inputs"], strict=True)
        return [None if value is None else _array(operand, value) for operand, value in pairs]

    @cached_property
    def outputs(self) -> list[ExpectedOutput]:
        """The expectation for each output of main."""
        pairs = zip(self._main_operands("outputs"), self.data["outputs"], strict=True)
        return [
            ExpectedOutput(_type(operand), _array(operand, value), value["ignored"], value["atol"], value["rtol"])
            for operand, value in pairs
        ]

    def model(self, *, unspecified_outputs: bool = False) -> types_pb2.Model:
        """Return the model. `unspecified_outputs`: all dimensions of the outputs are 0, and the rank stays."""
        writer = _ModelWriter()
        main, *referenced = [writer.subgraph(graph) for graph in self.graphs]
        model = types_pb2.Model(
            main=main,
            referenced=referenced,
            relax_computation_float32_to_float16=self.data["relaxed"],
            operand_values=bytes(writer.values),
        )
        if writer.pool:
            model.pools.add(inline=bytes(writer.pool))
        if unspecified_outputs:
            for i in model.main.output_indexes:
                operand = model.main.operands[i]
                operand.dimensions[:] = [0] * len(operand.dimensions)
        return model


class _ModelWriter:
    """Writer of subgraphs that collects constants: copies in `values`, references in `pool`."""

    def __init__(self) -> None:
        self.values = bytearray()
        self.pool = bytearray()

    def subgraph(self, graph: dict[str, Any]) -> types_pb2.Subgraph:
        message = types_pb2.Subgraph(
            operands=map(self._operand, graph["operands"]),
            input_indexes=graph["inputs"],
            output_indexes=graph["outputs"],
        )
        for operation in graph["operations"]:
            type_ = enums_pb2.OperationType.Value(f"OPERATION_TYPE_{operation['type']}")
            message.operations.add(type=type_, inputs=operation["inputs"], outputs=operation["outputs"])
        return message

    def _operand(self, operand: dict[str, Any]) -> types_pb2.Operand:
        lifetime = operand["lifetime"]
        message = types_pb2.Operand(
            type=enums_pb2.OperandType.Value(f"OPERAND_TYPE_{operand['type']}"),
            dimensions=operand["dimensions"],
            scale=operand["scale"],
            zero_point=operand["zero_point"],
            lifetime=int(OperandLifeTime[lifetime.replace("CONSTANT_REFERENCE", "CONSTANT_POOL")]),  # type: ignore[arg-type]
        )
        if lifetime == "CONSTANT_COPY":
            self._add_constant(message, self.values, operand)
        elif lifetime == "CONSTANT_REFERENCE":
            self._add_constant(message, self.pool, operand)
        elif lifetime == "SUBGRAPH":
            message.location.offset = operand["subgraph"]
        if quant := operand.get("channel_quant"):
            message.extra_params.channel_quant.scales.extend(quant["scales"])
            message.extra_params.channel_quant.channel_dim = quant["channel_dim"]
        return message

    def _add_constant(self, message: types_pb2.Operand, store: bytearray, operand: dict[str, Any]) -> None:
        data = base64.b64decode(operand["data"])
        store += bytes(-len(store) % CONSTANT_ALIGNMENT)
        message.location.offset, message.location.length = len(store), len(data)
        store += data


def _type(operand: dict[str, Any]) -> int:
    return int(OperandType[operand["type"]])


def _array(operand: dict[str, Any], value: dict[str, Any]) -> AnyArray:
    data = np.frombuffer(base64.b64decode(value["data"]), DTYPES[_type(operand)])
    return data.reshape(value["dimensions"])


def find_files(folder: Path) -> list[Path]:
    """Return the paths of the vector files below a folder, in order.

    Raises:
        FileNotFoundError: there are none.
    """
    paths = sorted(folder.rglob("*.jsonl.gz"))
    if not paths:
        raise FileNotFoundError(f"no vectors (*.jsonl.gz) below {folder}")
    return paths


def read_cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of the vector files below a folder, in order.

    Raises:
        FileNotFoundError: there are no vector files.
    """
    for path in find_files(folder):
        with gzip.open(path, "rt", encoding="ascii") as lines:
            for line in lines:
                yield Case(json.loads(line))
