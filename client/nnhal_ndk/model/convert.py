"""Conversion of finished models to models of the HAL."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from nnhal.alignment import align
from nnhal.types import (
    PROT_READ,
    DataLocation,
    ExtensionNameAndPrefix,
    Memory,
    Model,
    OperandLifeTime,
    Subgraph,
    is_extension,
)
from nnhal_ndk.extensions import PREFIXES
from nnhal_ndk.model.model import MappedMemory, MemoryRegion, NdkModel


def to_hal_model(model: NdkModel) -> Model:
    """Return a finished model with the models that it refers to. Large values stay where they are.

    Raises:
        NdkError: BAD_DATA: an operation belongs to an extension that the process has not asked for.
    """
    return _ModelConversion().convert(model)


def without_operations(model: Model, left_out: Collection[int]) -> Model:
    """Return a model without some operations of its main subgraph. Their results become inputs."""
    if not left_out:
        return model
    main, operands = model.main, list(model.main.operands)
    operations = tuple(operation for number, operation in enumerate(main.operations) if number not in left_out)
    missing = tuple(index for number in left_out for index in main.operations[number].outputs)
    outputs = tuple(index for index in main.output_indexes if index not in missing)
    if operations and not outputs:  # V-SUBGRAPH-03
        outputs = operations[-1].outputs
    for indexes, lifetime in (
        (missing, OperandLifeTime.SUBGRAPH_INPUT),
        (outputs, OperandLifeTime.SUBGRAPH_OUTPUT),
    ):
        for index in indexes:
            operands[index] = replace(operands[index], lifetime=lifetime)
    return replace(model, main=Subgraph(tuple(operands), operations, (*main.input_indexes, *missing), outputs))


class _ModelConversion:
    """Values and subgraphs that the subgraphs of a model share."""

    def __init__(self) -> None:
        self._values = bytearray()
        self._pools: list[Memory] = []
        self._memories: dict[int, int] = {}
        self._references: dict[int, int] = {}
        self._referenced: list[Subgraph | None] = []

    def convert(self, model: NdkModel) -> Model:
        main = self._subgraph(model)
        referenced = tuple(graph for graph in self._referenced if graph is not None)
        extensions = _extensions((main, *referenced))
        return Model(main, referenced, bytes(self._values), tuple(self._pools), model.is_relaxed, extensions)

    def _subgraph(self, model: NdkModel) -> Subgraph:
        operands = tuple(
            replace(operand, location=self._location(model, index)) for index, operand in enumerate(model.operands)
        )
        return Subgraph(operands, tuple(model.operations), model.inputs, model.outputs)

    def _location(self, model: NdkModel, index: int) -> DataLocation:
        match model.values.get(index):
            case bytes() as value:
                offset = align(len(self._values))
                self._values += bytes(offset - len(self._values)) + value
                return DataLocation(0, offset, len(value))
            case memoryview() as value:
                self._pools.append(Memory(np.frombuffer(value, np.uint8), prot=PROT_READ))
                return DataLocation(len(self._pools) - 1, 0, len(value))
            case MemoryRegion() as region:
                return DataLocation(self._pool(region.memory), region.offset, region.length)
            case NdkModel() as callee:
                return DataLocation(offset=self._reference(callee))
            case _:
                return DataLocation()

    def _pool(self, memory: MappedMemory) -> int:
        if id(memory) not in self._memories:
            self._memories[id(memory)] = len(self._pools)
            self._pools.append(Memory(memory.contents, prot=PROT_READ))
        return self._memories[id(memory)]

    def _reference(self, model: NdkModel) -> int:
        number = self._references.get(id(model))
        if number is None:
            number = self._references[id(model)] = len(self._referenced)
            self._referenced.append(None)
            self._referenced[number] = self._subgraph(model)
        return number


def _extensions(graphs: Sequence[Subgraph]) -> tuple[ExtensionNameAndPrefix, ...]:
    """Return the extensions whose operand types and operations subgraphs use."""
    types = {operand.type for graph in graphs for operand in graph.operands}
    types |= {operation.type for graph in graphs for operation in graph.operations}
    return tuple(dict.fromkeys(PREFIXES.entry_of(type_) for type_ in sorted(types) if is_extension(type_)))
