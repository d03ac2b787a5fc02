"""Random graphs for comparisons of CpuAcc with CpuRef, composed of the samples of single operations.

`samples` draws an operation and prefers the type and shape of a tensor of the graph. Each tensor of the operation is
then a tensor of the graph, a new input or a constant. Further operations convert tensors that do not fit.

Each operation runs as soon as it is added. The graph drops an operation that breaks a rule, and one whose results are
too large or not finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.operations import SIGNATURES
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
    is_tensor,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.samples import (
    B8,
    BYTES,
    F16,
    F32,
    FLOATS,
    I32,
    SAMPLES,
    PreferringDraw,
    like,
    quantized,
    rng,
)
from tests.driver.backends.litert.support.tolerance import Argument, errors
from tests.driver.one_operation import int_tensor, run_kernel, sample, tensor

_MAX_OPERATIONS = 12
_MAX_CONVERSION_OPERATIONS = 6
"""Upper bound for the operations that convert a tensor, plus the operation that reads it."""
_MAX_VALUES = {F16: 2e3, F32: 1e5, I32: 2e4}
_MAX_ELEMENTS = 4096
_LENGTHS = (1, 2, 3, 4, 7, 8, 16, 17, 33)
_MAX_INITIAL_ELEMENTS = 1024
_MAX_RANK = 4
"""Maximum rank for RESHAPE, TILE and SLICE."""
_POSITIVE_ARGUMENTS = {Op.LOG, Op.SQRT, Op.RSQRT, Op.POW, Op.DIV}
_INDEX_ARGUMENTS = {Op.GATHER: 2, Op.EMBEDDING_LOOKUP: 0}
"""Arguments that are positions in another argument."""

_CONSTANT = OperandLifeTime.CONSTANT_COPY
_CONVERSIONS = {
    ("float", "byte"): Op.QUANTIZE,
    ("byte", "float"): Op.DEQUANTIZE,
    ("float", "float"): Op.CAST,
    ("float", "int"): Op.CAST,
    ("int", "float"): Op.CAST,
}


@dataclass
class Entry:
    """An operand of a graph.

    Attributes:
        error: the error bound for two correct runs, for each element; None for an exact value.
    """

    operand: Operand
    value: AnyArray | None
    error: AnyArray | None = None


@dataclass(frozen=True)
class Sample:
    """A model with the values of its inputs.

    Attributes:
        expected: the outputs of CpuRef. Empty if the batch is empty; then only shapes or errors can be compared.
        errors: the error bound of each output.
    """

    model: Model
    inputs: Sequence[AnyArray]
    expected: Sequence[AnyArray]
    errors: Sequence[AnyArray]

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Print the sample in reports of hypothesis."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        graphs = (self.model.main, *self.model.referenced)
        return "\n".join(_description(graph) for graph in graphs)


def _description(graph: Subgraph) -> str:
    lines = [f"inputs {graph.input_indexes}, outputs {graph.output_indexes}"]
    for operation in graph.operations:
        lines.append(f"  {Op(operation.type).name} {operation.inputs} -> {operation.outputs}")
    for i, operand in enumerate(graph.operands):
        kind = f"{T(operand.type).name} {operand.dimensions}, {operand.scale:g}, {operand.zero_point}"
        lines.append(f"    {i}: {kind}, {OperandLifeTime(operand.lifetime).name}")
    return "\n".join(lines)


@dataclass
class Graph:
    """Graph under construction.

    Attributes:
        tensors: the operands that further operations may read.
    """

    entries: list[Entry] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    tensors: list[int] = field(default_factory=list)

    def add(self, entry: Entry) -> int:
        """Add an operand and return its index."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def apply(self, type_: Op, inputs: Sequence[int], outputs: Sequence[Operand]) -> list[int] | None:
        """Add an operation and return its outputs; None if CpuRef rejects it or its results cannot be compared."""
        arguments: list[Argument] = [(e.operand, e.value, e.error) for e in (self.entries[i] for i in inputs)]
        if isinstance(SIGNATURES[type_].bind([operand for operand, _, _ in arguments], outputs), str):
            return None
        try:
            with np.errstate(all="ignore"):
                values = run_kernel(type_, [(operand, value) for operand, value, _ in arguments], outputs)
                bounds = errors(type_, arguments, outputs, values)
        except HalError:
            return None
        if not all(_is_comparable(operand, value) for operand, value in zip(outputs, values, strict=True)):
            return None
        indexes = []
        for operand, value, error in zip(outputs, values, bounds, strict=True):
            lifetime = OperandLifeTime.TEMPORARY_VARIABLE
            result = replace(operand, dimensions=value.shape, lifetime=lifetime)
            indexes.append(self.add(Entry(result, value, error)))
            if is_tensor(operand.type) and np.isfinite(error).all() and value.size:
                self.tensors.append(indexes[-1])
        self.operations.append(Operation(type_, tuple(inputs), tuple(indexes)))
        return indexes

    def apply_single(self, type_: Op, inputs: Sequence[int], output: Operand) -> int | None:
        """Add an operation with one output; see `apply`."""
        indexes = self.apply(type_, inputs, [output])
        return indexes[0] if indexes else None

    def add_constant(self, operand: Operand, value: object) -> int:
        """Add a constant and return its index."""
        array = np.asarray(value).astype(DTYPES[operand.type])
        return self.add(Entry(replace(operand, lifetime=_CONSTANT), array))

    def add_input(self, operand: Operand, value: object) -> int:
        """Add an input and return its index."""
        array = np.asarray(value).astype(DTYPES[operand.type])
        return self.add(Entry(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT), array))

    def sample(self, outputs: Sequence[int], unknown: str = "", relaxed: bool = False) -> Sample:
        """Return the model.

        Args:
            outputs: the operands that become outputs of the model.
            unknown: the dimensions that are unknown before execution: "batch", "all" or none.
            relaxed: whether float32 may be computed in half precision.
        """
        data = bytearray()
        operands = []
        for i, entry in enumerate(self.entries):
            operands.append(
                _with_location(_with_unknown_dimensions(entry.operand, unknown), entry.value, data, i in outputs)
            )
        inputs = [i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT]
        main = Subgraph(tuple(operands), tuple(self.operations), tuple(inputs), tuple(outputs))
        model = Model(main, operand_values=bytes(data), relax_computation_float32_to_float16=relaxed)
        return Sample(model, self._values(inputs), self._values(outputs), [self._error(o) for o in outputs])

    def _values(self, indexes: Sequence[int]) -> list[AnyArray]:
        values = [self.entries[i].value for i in indexes]
        return [array for array in values if array is not None]

    def _error(self, index: int) -> AnyArray:
        error = self.entries[index].error
        return np.zeros(()) if error is None else error


@dataclass
class Grower(Graph):
    """Graph that grows by random operations."""

    draw: st.DrawFn = field(kw_only=True)

    # ---- Random operations ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Add an input that is larger than those of the samples: kernels process 4, 8 or 16 elements at a time."""
        shape = self.draw(st.lists(st.sampled_from(_LENGTHS), min_size=1, max_size=4))
        if prod(shape) <= _MAX_INITIAL_ELEMENTS:
            operand = quantized(self.draw, self.draw(st.sampled_from((*FLOATS, *BYTES, I32, B8))), shape)
            self.tensors.append(self.add_input(operand, sample(rng(self.draw), operand)))

    def grow(self) -> None:
        """Add a random operation if its draw is valid."""
        before = len(self.entries), len(self.operations), len(self.tensors)
        type_ = self.draw(st.sampled_from(sorted(SAMPLES)))
        if not self._apply_random(type_):
            del self.entries[before[0] :], self.operations[before[1] :], self.tensors[before[2] :]

    def _apply_random(self, type_: Op) -> bool:
        near = self._draw_tensor()
        draw = self.draw if near is None else PreferringDraw(self.draw, self.entries[near].operand)
        case = SAMPLES[type_](draw, type_)
        inputs = []
        for i, (operand, value) in enumerate(case.inputs):
            index = None
            if is_tensor(operand.type) and i not in case.constant and _INDEX_ARGUMENTS.get(type_) != i:
                index = self._find(operand, near if i == 0 or self.draw(st.booleans()) else self._draw_tensor())
                if index is not None and type_ in _POSITIVE_ARGUMENTS:
                    index = self._at_least_quarter(index)
            inputs.append(self._add_source(operand, value, i in case.constant) if index is None else index)
        return self.apply(type_, inputs, case.outputs) is not None

    def _draw_tensor(self) -> int | None:
        """Return a tensor of the graph, if any: half of the time one of the last two, so that graphs become deep."""
        if not self.tensors:
            return None
        return int(self.draw(st.sampled_from(self.tensors if self.draw(st.booleans()) else self.tensors[-2:])))

    def _add_source(self, operand: Operand, value: object, constant: bool) -> int:
        """Add an operand that no operation computes: a constant, an input, or an operand without a value."""
        if value is None:
            return self.add(Entry(replace(operand, lifetime=OperandLifeTime.NO_VALUE), None))
        array = np.asarray(value).astype(DTYPES[operand.type])
        is_constant = constant or not is_tensor(operand.type) or array.size == 0 or self.draw(st.integers(0, 2)) == 0
        lifetime = _CONSTANT if is_constant else OperandLifeTime.SUBGRAPH_INPUT
        index = self.add(Entry(replace(operand, lifetime=lifetime), array))
        if not is_constant and operand.type in (*FLOATS, *BYTES, B8, I32):
            self.tensors.append(index)
        return index

    # ---- Conversions of tensors ------------------------------------------------------------------------------

    def _find(self, operand: Operand, near: int | None) -> int | None:
        """Return a tensor of the graph that fits an operand, converted if necessary; None to use a new operand."""
        fitting = [i for i in self.tensors if _has_same_type(self.entries[i].operand, operand)]
        if near is not None and near in fitting and self.draw(st.booleans()):
            return near
        if fitting and self.draw(st.integers(0, 4)) != 0:
            return int(self.draw(st.sampled_from(fitting)))
        has_room = len(self.operations) + _MAX_CONVERSION_OPERATIONS <= _MAX_OPERATIONS
        if (
            near is None
            or not has_room
            or operand.type not in (*FLOATS, *BYTES, B8, I32)
            or not self.draw(st.booleans())
        ):
            return None
        reshaped = self._reshape(near, operand.dimensions)
        return None if reshaped is None else self._convert(reshaped, operand)

    def _vector(self, numbers: Sequence[int]) -> int:
        return self.add_constant(*int_tensor(list(numbers)))

    def _reshape(self, index: int, shape: Sequence[int]) -> int | None:
        """Bring a tensor to another shape: its elements are repeated or cut off."""
        operand = self.entries[index].operand
        count, expected = prod(operand.dimensions), prod(shape)
        if operand.dimensions == tuple(shape):
            return index
        if operand.type == B8 or max(len(operand.dimensions), len(shape)) > _MAX_RANK:
            return None
        flat: int | None = index
        if count != expected:
            flat = self.apply_single(Op.RESHAPE, [index, self._vector([count])], like(operand))
            if flat is not None and count < expected:
                flat = self.apply_single(Op.TILE, [flat, self._vector([-(-expected // count)])], like(operand))
            if flat is not None and prod(self.entries[flat].operand.dimensions) > expected:
                flat = self.apply_single(Op.SLICE, [flat, self._vector([0]), self._vector([expected])], like(operand))
        return None if flat is None else self.apply_single(Op.RESHAPE, [flat, self._vector(shape)], like(operand))

    def _convert(self, index: int, target: Operand) -> int | None:
        """Bring a tensor to another type, scale and zero point."""
        source = self.entries[index].operand
        if _has_same_type(source, target):
            return index
        if target.type == B8:
            return self._compare(index)
        if source.type == B8:
            return self._select(index, target)
        if source.type in BYTES and target.type in BYTES:
            real = self.apply_single(Op.DEQUANTIZE, [index], tensor(F32))
            return None if real is None else self.apply_single(Op.QUANTIZE, [real], like(target))
        conversion = _CONVERSIONS.get((_kind(source), _kind(target)))
        return None if conversion is None else self.apply_single(conversion, [index], like(target))

    def _compare(self, index: int) -> int | None:
        """Compare all elements with the first."""
        entry = self.entries[index]
        assert entry.value is not None
        first = self.add_constant(replace(like(entry.operand), dimensions=(1,)), entry.value.reshape(-1)[:1])
        return self.apply_single(Op.GREATER, [index, first], tensor(B8))

    def _select(self, index: int, target: Operand) -> int | None:
        """Select a number for each truth value."""
        constant = replace(target, dimensions=self.entries[index].operand.dimensions)
        random = np.random.default_rng(len(self.entries))
        choices = [self.add_constant(constant, sample(random, constant)) for _ in range(2)]
        return self.apply_single(Op.SELECT, [index, *choices], like(target))

    def _at_least_quarter(self, index: int) -> int | None:
        """Limit the values of a float tensor to at least 0.25."""
        operand = self.entries[index].operand
        if operand.type not in FLOATS:
            return None
        least = self.add_constant(replace(like(operand), dimensions=(1,)), [0.25])
        return self.apply_single(Op.MAXIMUM, [index, least], like(operand))

    # ---- The model -----------------------------------------------------------------------------------------

    def random_sample(self) -> Sample:
        """Return the model. Its outputs are all results that no operation reads, and some others."""
        read = {i for operation in self.operations for i in operation.inputs}
        results = [o for operation in self.operations for o in operation.outputs]
        outputs = [o for o in results if o not in read or self.draw(st.integers(0, 3)) == 0]
        unknown = self.draw(st.sampled_from([""] * 8 + ["batch", "all"]))
        return self.sample(outputs, unknown, self.draw(st.booleans()))


def _kind(operand: Operand) -> str:
    return "float" if operand.type in FLOATS else "byte" if operand.type in BYTES else "int"


def _has_same_type(a: Operand, b: Operand) -> bool:
    return (a.type, a.dimensions, a.scale, a.zero_point) == (b.type, b.dimensions, b.scale, b.zero_point)


def _is_comparable(operand: Operand, value: AnyArray) -> bool:
    if value.size > _MAX_ELEMENTS:
        return False
    limit = _MAX_VALUES.get(T(operand.type), np.inf)
    return not value.size or bool(np.isfinite(value).all() and np.abs(value.astype(float)).max() <= limit)


def _with_unknown_dimensions(operand: Operand, unknown: str) -> Operand:
    """Return the operand with the first dimension ("batch") or all dimensions ("all") unknown."""
    if (
        not unknown
        or operand.lifetime in (_CONSTANT, OperandLifeTime.NO_VALUE)
        or not operand.dimensions
        or operand.extra_params is not None
    ):
        return operand
    if unknown == "batch" and operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT:
        return replace(operand, dimensions=(0, *operand.dimensions[1:]))
    return replace(operand, dimensions=(0,) * len(operand.dimensions))


def _with_location(operand: Operand, value: AnyArray | None, data: bytearray, is_output: bool) -> Operand:
    if operand.lifetime == _CONSTANT:
        assert value is not None
        location = DataLocation(0, len(data), value.nbytes)
        data += value.tobytes() + bytes(-value.nbytes % 4)
        return (
            replace(operand, location=location) if value.nbytes else replace(operand, lifetime=OperandLifeTime.NO_VALUE)
        )
    return replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT) if is_output else operand


@st.composite
def graphs(draw: st.DrawFn) -> Sample:
    """Return a graph of 3 to 12 operations, sometimes as the body of an IF or a WHILE."""
    graph = Grower(draw=draw)
    for _ in range(draw(st.integers(0, 2))):
        graph.start()
    count = draw(st.integers(3, _MAX_OPERATIONS))
    for _ in range(3 * count):
        if len(graph.operations) >= count:
            break
        graph.grow()
    original = graph.random_sample()
    variant = draw(st.sampled_from([None] * 20 + [in_if, in_while, with_empty_batch]))
    return original if variant is None else variant(original)


def with_empty_batch(original: Sample) -> Sample:
    """Return the graph with a SLICE before one input that empties its batch: a request cannot pass an empty tensor."""
    inner, data = original.model.main, bytearray(original.model.operand_values)
    position = next((k for k, i in enumerate(inner.input_indexes) if _is_sliceable(inner.operands[i])), None)
    if position is None:
        return original
    index, value = inner.input_indexes[position], original.inputs[position]
    vector = Operand(I32, (value.ndim,))
    operands = [
        *inner.operands,
        replace(inner.operands[index], lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        _with_location(replace(vector, lifetime=_CONSTANT), np.zeros(value.ndim, np.int32), data, False),
        replace(vector, lifetime=OperandLifeTime.SUBGRAPH_INPUT),
    ]
    operands[index] = replace(operands[index], lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
    whole, begin, size = (len(operands) - 3 + k for k in range(3))
    inputs = [whole if i == index else i for i in inner.input_indexes]
    main = Subgraph(
        tuple(_with_unknown_dimensions(operand, "all") for operand in operands),
        (Operation(Op.SLICE, (whole, begin, size), (index,)), *inner.operations),
        (*inputs, size),
        inner.output_indexes,
    )
    arrays = [*original.inputs, np.array([0, *value.shape[1:]], np.int32)]
    return Sample(replace(original.model, main=main, operand_values=bytes(data)), arrays, (), ())


def _is_sliceable(operand: Operand) -> bool:
    return operand.type in (*FLOATS, *BYTES, I32) and len(operand.dimensions) <= _MAX_RANK


def in_if(original: Sample) -> Sample:
    """Return the graph in both branches of an IF."""
    inner = original.model.main
    operands = [Operand(B8, (1,), lifetime=OperandLifeTime.SUBGRAPH_INPUT)]
    operands += [_reference(0), _reference(1)]
    return _wrap(original, Op.IF, operands, (inner, inner), [np.array([True])])


def in_while(original: Sample) -> Sample:
    """Return the graph in the body of a WHILE with two iterations. Its state is a counter and the outputs."""
    if not all(value.size for value in original.expected):
        return original  # a request cannot pass the empty initial state
    inner, data = original.model.main, bytearray(original.model.operand_values)
    limit, increment, activation = (np.array(n, np.int32) for n in ([2], [1], 0))
    counter = Operand(I32, (1,), lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    state_operands = [replace(inner.operands[o], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for o in inner.output_indexes]
    # operands of the body: those of the graph, the counter, the previous outputs, and those of the ADD
    base = len(inner.operands)
    body_operands = [*inner.operands, counter, *state_operands]
    body_operands += [_with_location(Operand(I32, (1,), lifetime=_CONSTANT), increment, data, False)]
    body_operands += [_with_location(Operand(T.INT32, lifetime=_CONSTANT), activation, data, False)]
    body_operands += [Operand(I32, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)]
    last = len(body_operands) - 1
    state = tuple(range(base, base + 1 + len(state_operands)))
    body = Subgraph(
        tuple(body_operands),
        (*inner.operations, Operation(Op.ADD, (base, last - 2, last - 1), (last,))),
        (*state, *inner.input_indexes),
        (last, *inner.output_indexes),
    )
    inputs = [replace(inner.operands[i], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for i in inner.input_indexes]
    condition_operands = [counter, *state_operands, *inputs]
    condition_operands.append(_with_location(Operand(I32, (1,), lifetime=_CONSTANT), limit, data, False))
    condition_operands.append(Operand(B8, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
    count = len(condition_operands)
    less = Operation(Op.LESS, (0, count - 2), (count - 1,))
    condition = Subgraph(tuple(condition_operands), (less,), tuple(range(count - 2)), (count - 1,))
    operands = [_reference(0), _reference(1), counter, *state_operands]
    start = [np.zeros(1, np.int32), *(np.zeros_like(value) for value in original.expected)]
    model = replace(original.model, operand_values=bytes(data))
    outer = _wrap(replace(original, model=model), Op.WHILE, operands, (condition, body), start)
    return replace(
        outer, expected=[np.array([2], np.int32), *original.expected], errors=[np.zeros(()), *original.errors]
    )


def _reference(number: int) -> Operand:
    return Operand(T.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(0, number, 0))


def _wrap(
    original: Sample, type_: Op, first: Sequence[Operand], referenced: tuple[Subgraph, ...], start: Sequence[AnyArray]
) -> Sample:
    """Return a model of one IF or WHILE. Its arguments are `first` and then the inputs of the graph."""
    inner = original.model.main
    inner_inputs = [replace(inner.operands[i], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for i in inner.input_indexes]
    results = [inner.operands[o] for o in inner.output_indexes]
    if type_ == Op.WHILE:
        results.insert(0, Operand(I32, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
    operands = [*first, *inner_inputs, *results]
    inputs = tuple(range(len(first) + len(inner_inputs)))
    outputs = tuple(range(len(inputs), len(operands)))
    model_inputs = tuple(i for i in inputs if operands[i].lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    main = Subgraph(tuple(operands), (Operation(type_, inputs, outputs),), model_inputs, outputs)
    return replace(
        original, model=replace(original.model, main=main, referenced=referenced), inputs=[*start, *original.inputs]
    )
