"""Division of a model into parts: operations that a device supports, and those that others or the client's machine run.

The parts run one after the other. Values that one part writes and another reads pass through the client. Operations
that only depend on constants follow the operations that read their results, into several parts if need be, so that
these still read constants.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from nnhal.client.fallback.constants import PoolWindows
from nnhal.litert_extension import element_dtypes
from nnhal.phases import OperationPhase, divide_into_phases
from nnhal.types import (
    DTYPES,
    ExtensionNameAndPrefix,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
    is_extension,
    is_tensor,
)

VALUE_LIFETIMES = (
    OperandLifeTime.SUBGRAPH_INPUT,
    OperandLifeTime.TEMPORARY_VARIABLE,
    OperandLifeTime.SUBGRAPH_OUTPUT,
)
"""Lifetimes of operands whose values differ between executions."""

FALLBACK = 1
"""Number of the client's machine, where a model is divided between it and one device, whose number is 0."""

Supports = Callable[[int, int], bool]
"""Returns whether a device, by its number, supports an operation of main."""

_PREFIX_SHIFT = 16


@dataclass(frozen=True, eq=False)
class Part:
    """Operations of a model as a model of their own.

    Attributes:
        model: the operations. It shares its constants with the whole model.
        device: number of the device that runs them.
        operations: their positions in the main subgraph of the whole model.
        inputs: for each input of `model`, the operand of the whole model.
        outputs: for each output of `model`, the operand of the whole model.
        subgraphs: for each subgraph of `model`, its number in the whole model.
    """

    model: Model
    device: int
    operations: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: tuple[int, ...]

    @property
    def is_fallback(self) -> bool:
        """True if the client's machine runs them, if the model is divided between it and one device."""
        return self.device == FALLBACK


@dataclass(frozen=True, eq=False)
class DividedModel:
    """A model and its parts, in an order of execution."""

    whole: Model
    parts: tuple[Part, ...]

    @cached_property
    def fallback_operations(self) -> frozenset[int]:
        """Operations of main that only the client's machine runs."""
        on_device = {i for part in self.parts if not part.is_fallback for i in part.operations}
        return frozenset(range(len(self.whole.main.operations))) - on_device

    @cached_property
    def crossing_bytes(self) -> int | None:
        """Bytes of intermediate results that each execution sends to the device and receives from it.

        None if the shape of such a result is not known.
        """
        main = self.whole.main
        ends = {*main.input_indexes, *main.output_indexes}
        sizes = [
            self._size(operand)
            for part in self.parts
            if not part.is_fallback
            for operand in (*part.inputs, *part.outputs)
            if operand not in ends
        ]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def _size(self, index: int) -> int | None:
        operand = self.whole.main.operands[index]
        dtype = element_dtypes(self.whole.extension_name_to_prefix).get(operand.type) or DTYPES.get(operand.type)
        is_unknown = 0 in operand.dimensions or (is_tensor(operand.type) and not operand.dimensions)
        return None if dtype is None or is_unknown else dtype.itemsize * prod(operand.dimensions)


def divide(model: Model, unsupported: Collection[int]) -> DividedModel:
    """Divide a valid model between a device and the client's machine.

    Args:
        model: the model.
        unsupported: operations of main that the device does not support.
    """
    fallback = frozenset(unsupported)
    devices = [FALLBACK if i in fallback else 0 for i in range(len(model.main.operations))]
    return divide_among(model, devices, lambda device, i: device == FALLBACK or i not in fallback)


def divide_among(model: Model, devices: Sequence[int], supports: Supports) -> DividedModel:
    """Divide a valid model among devices.

    Args:
        model: the model.
        devices: for each operation of main, the number of the device that runs it.
        supports: the operations that devices support, for those on constants.
    """
    following = _followers(model.main, devices, supports)
    phases = divide_into_phases(model.main.operations, devices, following)
    members = [_with_followers(model.main, phase, following) for phase in phases]
    read = [_values_from_outside(model.main, operations) for operations in members]
    parts = []
    for number, (phase, operations) in enumerate(zip(phases, members, strict=True)):
        elsewhere = {o for other, values in enumerate(read) if other != number for o in values}
        needed = elsewhere.union(model.main.output_indexes)
        parts.append(_part(model, operations, phase.kind, read[number], needed))
    return DividedModel(model, tuple(parts))


# ---- Operations on constants ----------------------------------------------------------------------------


def _followers(main: Subgraph, devices: Sequence[int], supports: Supports) -> frozenset[int]:
    """Return the operations on constants that run wherever their results are read.

    Not so if a device lacks one that it would have to run, or may lack it; nor if a result is an output of the model.
    """
    candidates: Collection[int] = range(len(main.operations))
    while True:
        followers = _constant_operations(main, candidates)
        lacking = _lacking(main, followers, devices, supports)
        if not lacking:
            return followers
        candidates = followers - lacking


def _constant_operations(main: Subgraph, candidates: Collection[int]) -> frozenset[int]:
    """Return the candidates that depend only on constants, and on other candidates."""
    constant: set[int] = set()
    written: set[int] = set()
    for i, operation in enumerate(main.operations):
        values = (o for o in operation.inputs if main.operands[o].lifetime in VALUE_LIFETIMES)
        if i in candidates and not is_extension(operation.type) and all(o in written for o in values):
            constant.add(i)
            written.update(operation.outputs)
    return frozenset(constant)


def _lacking(main: Subgraph, followers: Collection[int], devices: Sequence[int], supports: Supports) -> set[int]:
    """Return those of the followers that cannot follow all their readers, or have none, or write an output."""
    readers: dict[int, list[int]] = {}
    for i, operation in enumerate(main.operations):
        for o in operation.inputs:
            readers.setdefault(o, []).append(i)
    outputs = set(main.output_indexes)
    lacking: set[int] = set()
    needed_on: dict[int, set[int]] = {}
    for i in sorted(followers, reverse=True):
        written = main.operations[i].outputs
        direct = [reader for o in written for reader in readers.get(o, ())]
        needed_on[i] = {device for reader in direct for device in needed_on.get(reader, {devices[reader]})}
        is_lacking = not all(supports(device, i) for device in needed_on[i])
        if not direct or is_lacking or not outputs.isdisjoint(written):
            lacking.add(i)
    return lacking


def _with_followers(main: Subgraph, phase: OperationPhase, following: Collection[int]) -> tuple[int, ...]:
    """Return the operations of a phase, with those on constants that they depend on, in order."""
    writers = {o: i for i in following for o in main.operations[i].outputs}
    operations = set(phase.operations)
    pending = list(phase.operations)
    while pending:
        needed = {writers[o] for o in main.operations[pending.pop()].inputs if o in writers} - operations
        operations |= needed
        pending += needed
    return tuple(sorted(operations))


def _values_from_outside(main: Subgraph, operations: Sequence[int]) -> tuple[int, ...]:
    written = {o for i in operations for o in main.operations[i].outputs}
    read = dict.fromkeys(o for i in operations for o in main.operations[i].inputs)
    return tuple(o for o in read if o not in written and main.operands[o].lifetime in VALUE_LIFETIMES)


# ---- Models of parts ------------------------------------------------------------------------------------


def _part(
    model: Model, numbers: tuple[int, ...], device: int, inputs: tuple[int, ...], needed: Collection[int]
) -> Part:
    """Return a part with some operations, given the values that it reads from others, and those that others read."""
    main = model.main
    operations = [main.operations[i] for i in numbers]
    written = tuple(dict.fromkeys(o for operation in operations for o in operation.outputs))
    outputs = tuple(o for o in written if o in needed) or written  # a model has outputs, even if they are not read
    subgraphs = _reached(model, operations)
    windows = PoolWindows(model, [main.operands[o] for operation in operations for o in operation.inputs], subgraphs)
    references = {number: position for position, number in enumerate(subgraphs)}

    def move(operand: Operand) -> Operand:
        if operand.lifetime == OperandLifeTime.SUBGRAPH:
            return replace(operand, location=replace(operand.location, offset=references[operand.location.offset]))
        return windows.move(operand)

    used = dict.fromkeys(o for operation in operations for o in (*operation.inputs, *operation.outputs))
    referenced = tuple(
        replace(graph, operands=tuple(map(move, graph.operands))) for graph in (model.referenced[i] for i in subgraphs)
    )
    part = replace(
        model,
        main=_subgraph(main, operations, inputs, outputs, {o: move(main.operands[o]) for o in used}),
        referenced=referenced,
        pools=windows.pools,
        extension_name_to_prefix=(),
        input_names=(),
        output_names=(),
        operation_names=tuple(model.operation_names[i] for i in numbers) if model.operation_names else (),
        states=(),
    )
    part = replace(part, extension_name_to_prefix=_extensions(model, part))
    return Part(part, device, numbers, inputs, outputs, (0, *(i + 1 for i in subgraphs)))


def _subgraph(
    main: Subgraph,
    operations: Sequence[Operation],
    inputs: Sequence[int],
    outputs: Sequence[int],
    operands: Mapping[int, Operand],
) -> Subgraph:
    """Return a subgraph of some operations. `operands`: the operands that they use, by their numbers in `main`."""
    numbers = {o: position for position, o in enumerate(operands)}
    lifetimes = dict.fromkeys(inputs, OperandLifeTime.SUBGRAPH_INPUT)
    lifetimes |= dict.fromkeys(outputs, OperandLifeTime.SUBGRAPH_OUTPUT)

    def with_lifetime(o: int) -> Operand:
        if main.operands[o].lifetime not in VALUE_LIFETIMES:
            return operands[o]
        return replace(operands[o], lifetime=lifetimes.get(o, OperandLifeTime.TEMPORARY_VARIABLE))

    return Subgraph(
        tuple(map(with_lifetime, operands)),
        tuple(
            replace(
                operation,
                inputs=tuple(numbers[o] for o in operation.inputs),
                outputs=tuple(numbers[o] for o in operation.outputs),
            )
            for operation in operations
        ),
        tuple(numbers[o] for o in inputs),
        tuple(numbers[o] for o in outputs),
    )


def _reached(model: Model, operations: Sequence[Operation]) -> list[int]:
    """Return the referenced subgraphs that operations of main may run, directly or not, in the model's order."""
    pending = [model.main.operands[o] for operation in operations for o in operation.inputs]
    reached: set[int] = set()
    while pending:
        operand = pending.pop()
        number = operand.location.offset
        if operand.lifetime == OperandLifeTime.SUBGRAPH and number not in reached:
            reached.add(number)
            pending += model.referenced[number].operands
    return sorted(reached)


def _extensions(model: Model, part: Model) -> tuple[ExtensionNameAndPrefix, ...]:
    """Return the extensions that a part uses, of those of the whole model."""
    types = {each.type for graph in part.subgraphs for each in graph.operands}
    types |= {each.type for graph in part.subgraphs for each in graph.operations}
    prefixes = {type_ >> _PREFIX_SHIFT for type_ in types if is_extension(type_)}
    return tuple(entry for entry in model.extension_name_to_prefix if entry.prefix in prefixes)
