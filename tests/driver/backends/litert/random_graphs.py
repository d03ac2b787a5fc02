"""Random graphs for comparisons of CpuAcc with CpuRef: the samples of single operations, joined to one another.

An operation is drawn as `samples` draws it, steered towards a tensor that the graph has. Each of its tensors is then
one of the graph's (as it is, or brought to the wanted type and shape by operations), a new input, or a constant. Each
operation is run as it is added: draws that break a rule, or whose numbers are not worth comparing, are taken back.
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
from tests.driver.backends.litert.samples import (
    B8,
    BYTES,
    F16,
    F32,
    FLOATS,
    I32,
    SAMPLES,
    Steered,
    like,
    quantized,
    rng,
)
from tests.driver.backends.litert.tolerance import Argument, errors
from tests.driver.one_operation import int_tensor, run_kernel, sample, tensor

_MOST_OPERATIONS = 12
_BROUGHT = 6
"""Operations that bringing a tensor to another type and shape takes, with the one that reads it, at most."""
_LARGEST = {F16: 2e3, F32: 1e5, I32: 2e4}
_MOST_ELEMENTS = 4096
_LENGTHS = (1, 2, 3, 4, 7, 8, 16, 17, 33)
_LARGEST_START = 1024
_HIGHEST_RANK = 4
"""That RESHAPE, TILE and SLICE take."""
_POSITIVE = {Op.LOG, Op.SQRT, Op.RSQRT, Op.POW, Op.DIV}
_ALONE = {Op.GATHER: 2, Op.EMBEDDING_LOOKUP: 0}
"""Arguments that are positions in another, and no numbers."""


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
    """An operand, and its value with the error that two right runs may have; no error is an exact value."""

    operand: Operand
    value: AnyArray | None
    error: AnyArray | None = None


@dataclass(frozen=True)
class Sample:
    """A model, the values of its inputs, what CpuRef makes of them, and by how much another may differ.

    Without `expected` the batch is empty, and only shapes, or the failure, can be compared.
    """

    model: Model
    inputs: Sequence[AnyArray]
    expected: Sequence[AnyArray]
    errors: Sequence[AnyArray]

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """How hypothesis shows it."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        graphs = (self.model.main, *self.model.referenced)
        return "\n".join(_described(graph) for graph in graphs)


def _described(graph: Subgraph) -> str:
    lines = [f"inputs {graph.input_indexes}, outputs {graph.output_indexes}"]
    for operation in graph.operations:
        lines.append(f"  {Op(operation.type).name} {operation.inputs} -> {operation.outputs}")
    for i, one in enumerate(graph.operands):
        kind = f"{T(one.type).name} {one.dimensions}, {one.scale:g}, {one.zero_point}"
        lines.append(f"    {i}: {kind}, {OperandLifeTime(one.lifetime).name}")
    return "\n".join(lines)


@dataclass
class Graph:
    """A graph in the making.

    Attributes:
        tensors: operands that further operations may read.
    """

    entries: list[Entry] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    tensors: list[int] = field(default_factory=list)

    def add(self, entry: Entry) -> int:
        """An operand."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def apply(self, type_: Op, inputs: Sequence[int], outputs: Sequence[Operand]) -> list[int] | None:
        """Adds an operation, unless CpuRef refuses it or its numbers are of no use."""
        arguments: list[Argument] = [(e.operand, e.value, e.error) for e in (self.entries[i] for i in inputs)]
        if isinstance(SIGNATURES[type_].bind([operand for operand, _, _ in arguments], outputs), str):
            return None
        try:
            with np.errstate(all="ignore"):
                values = run_kernel(type_, [(operand, value) for operand, value, _ in arguments], outputs)
                spread = errors(type_, arguments, outputs, values)
        except HalError:
            return None
        if not all(_useful(operand, value) for operand, value in zip(outputs, values, strict=True)):
            return None
        made = []
        for operand, value, error in zip(outputs, values, spread, strict=True):
            lifetime = OperandLifeTime.TEMPORARY_VARIABLE
            described = replace(operand, dimensions=value.shape, lifetime=lifetime)
            made.append(self.add(Entry(described, value, error)))
            if is_tensor(operand.type) and np.isfinite(error).all() and value.size:
                self.tensors.append(made[-1])
        self.operations.append(Operation(type_, tuple(inputs), tuple(made)))
        return made

    def one(self, type_: Op, inputs: Sequence[int], output: Operand) -> int | None:
        """Adds an operation of one output."""
        made = self.apply(type_, inputs, [output])
        return made[0] if made else None

    def fixed(self, operand: Operand, value: object) -> int:
        """A constant."""
        array = np.asarray(value).astype(DTYPES[operand.type])
        return self.add(Entry(replace(operand, lifetime=_CONSTANT), array))

    def given(self, operand: Operand, value: object) -> int:
        """An input."""
        array = np.asarray(value).astype(DTYPES[operand.type])
        return self.add(Entry(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT), array))

    def sample(self, outputs: Sequence[int], loose: str = "", relaxed: bool = False) -> Sample:
        """The model; `loose`: which dimensions only the execution tells, "batch" or "all"."""
        data = bytearray()
        operands = []
        for i, entry in enumerate(self.entries):
            operands.append(_placed(_loosened(entry.operand, loose), entry.value, data, i in outputs))
        inputs = [i for i, one in enumerate(operands) if one.lifetime == OperandLifeTime.SUBGRAPH_INPUT]
        main = Subgraph(tuple(operands), tuple(self.operations), tuple(inputs), tuple(outputs))
        model = Model(main, operand_values=bytes(data), relax_computation_float32_to_float16=relaxed)
        return Sample(model, self._values(inputs), self._values(outputs), [self._error(o) for o in outputs])

    def _values(self, indexes: Sequence[int]) -> list[AnyArray]:
        found = [self.entries[i].value for i in indexes]
        return [array for array in found if array is not None]

    def _error(self, index: int) -> AnyArray:
        error = self.entries[index].error
        return np.zeros(()) if error is None else error


@dataclass
class Grower(Graph):
    """A graph that grows by draws."""

    draw: st.DrawFn = field(kw_only=True)

    # ---- Growing -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Adds an input, larger than the samples' own: kernels take elements by 4, 8 or 16, then the rest."""
        shape = self.draw(st.lists(st.sampled_from(_LENGTHS), min_size=1, max_size=4))
        if prod(shape) <= _LARGEST_START:
            operand = quantized(self.draw, self.draw(st.sampled_from((*FLOATS, *BYTES, I32, B8))), shape)
            self.tensors.append(self.given(operand, sample(rng(self.draw), operand)))

    def grow(self) -> None:
        """Tries to add an operation."""
        before = len(self.entries), len(self.operations), len(self.tensors)
        type_ = self.draw(st.sampled_from(sorted(SAMPLES)))
        if not self._try(type_):
            del self.entries[before[0] :], self.operations[before[1] :], self.tensors[before[2] :]

    def _try(self, type_: Op) -> bool:
        near = self._near()
        draw = self.draw if near is None else Steered(self.draw, self.entries[near].operand)
        case = SAMPLES[type_](draw, type_)
        inputs = []
        for i, (operand, value) in enumerate(case.inputs):
            found = None
            if is_tensor(operand.type) and i not in case.constant and _ALONE.get(type_) != i:
                found = self._found(operand, near if i == 0 or self.draw(st.booleans()) else self._near())
                if found is not None and type_ in _POSITIVE:
                    found = self._positive(found)
            inputs.append(self._new(operand, value, i in case.constant) if found is None else found)
        return self.apply(type_, inputs, case.outputs) is not None

    def _near(self) -> int | None:
        """A tensor to go on from: one of the last, so that graphs become deep, or any."""
        if not self.tensors:
            return None
        return int(self.draw(st.sampled_from(self.tensors if self.draw(st.booleans()) else self.tensors[-2:])))

    def _new(self, operand: Operand, value: object, constant: bool) -> int:
        """An operand that no operation makes: a constant, an input, or one without a value."""
        if value is None:
            return self.add(Entry(replace(operand, lifetime=OperandLifeTime.NO_VALUE), None))
        array = np.asarray(value).astype(DTYPES[operand.type])
        fixed = constant or not is_tensor(operand.type) or array.size == 0 or self.draw(st.integers(0, 2)) == 0
        lifetime = _CONSTANT if fixed else OperandLifeTime.SUBGRAPH_INPUT
        made = self.add(Entry(replace(operand, lifetime=lifetime), array))
        if not fixed and operand.type in (*FLOATS, *BYTES, B8, I32):
            self.tensors.append(made)
        return made

    # ---- Bringing a tensor to what an operation wants --------------------------------------------------------

    def _found(self, operand: Operand, near: int | None) -> int | None:
        """A tensor of the graph for an operand: one that fits, or one that is made to fit."""
        fitting = [i for i in self.tensors if _same(self.entries[i].operand, operand)]
        if near is not None and near in fitting and self.draw(st.booleans()):
            return near
        if fitting and self.draw(st.integers(0, 4)) != 0:
            return int(self.draw(st.sampled_from(fitting)))
        room = len(self.operations) + _BROUGHT <= _MOST_OPERATIONS
        if near is None or not room or operand.type not in (*FLOATS, *BYTES, B8, I32) or not self.draw(st.booleans()):
            return None
        shaped = self._shaped(near, operand.dimensions)
        return shaped if shaped is None else self._typed(shaped, operand)

    def _vector(self, numbers: Sequence[int]) -> int:
        return self.fixed(*int_tensor(list(numbers)))

    def _shaped(self, index: int, shape: Sequence[int]) -> int | None:
        """The elements of a tensor, again and again or only the first, in another shape."""
        operand = self.entries[index].operand
        have, want = prod(operand.dimensions), prod(shape)
        if operand.dimensions == tuple(shape):
            return index
        if operand.type == B8 or max(len(operand.dimensions), len(shape)) > _HIGHEST_RANK:
            return None
        found: int | None = index
        if have != want:
            found = self.one(Op.RESHAPE, [index, self._vector([have])], like(operand))
            if found is not None and have < want:
                found = self.one(Op.TILE, [found, self._vector([-(-want // have)])], like(operand))
            if found is not None and prod(self.entries[found].operand.dimensions) > want:
                found = self.one(Op.SLICE, [found, self._vector([0]), self._vector([want])], like(operand))
        return None if found is None else self.one(Op.RESHAPE, [found, self._vector(shape)], like(operand))

    def _typed(self, index: int, wanted: Operand) -> int | None:
        """A tensor's numbers in another type, or other steps."""
        have = self.entries[index].operand
        if _same(have, wanted):
            return index
        if wanted.type == B8:
            return self._truth(index)
        if have.type == B8:
            return self._choice(index, wanted)
        if have.type in BYTES and wanted.type in BYTES:
            middle = self.one(Op.DEQUANTIZE, [index], tensor(F32))
            return None if middle is None else self.one(Op.QUANTIZE, [middle], like(wanted))
        step = _CONVERSIONS.get((_kind(have), _kind(wanted)))
        return None if step is None else self.one(step, [index], like(wanted))

    def _truth(self, index: int) -> int | None:
        """Which numbers are larger than the first."""
        entry = self.entries[index]
        assert entry.value is not None
        first = self.fixed(replace(like(entry.operand), dimensions=(1,)), entry.value.reshape(-1)[:1])
        return self.one(Op.GREATER, [index, first], tensor(B8))

    def _choice(self, index: int, wanted: Operand) -> int | None:
        """A number for each truth value."""
        plain = replace(wanted, dimensions=self.entries[index].operand.dimensions)
        random = np.random.default_rng(len(self.entries))
        choices = [self.fixed(plain, sample(random, plain)) for _ in range(2)]
        return self.one(Op.SELECT, [index, *choices], like(wanted))

    def _positive(self, index: int) -> int | None:
        operand = self.entries[index].operand
        if operand.type not in FLOATS:
            return None
        least = self.fixed(replace(like(operand), dimensions=(1,)), [0.25])
        return self.one(Op.MAXIMUM, [index, least], like(operand))

    # ---- Done --------------------------------------------------------------------------------------------

    def finished(self) -> Sample:
        """The model. Its outputs are all that no operation reads, and some that others read too."""
        read = {i for operation in self.operations for i in operation.inputs}
        made = [o for operation in self.operations for o in operation.outputs]
        outputs = [o for o in made if o not in read or self.draw(st.integers(0, 3)) == 0]
        loose = self.draw(st.sampled_from([""] * 8 + ["batch", "all"]))
        return self.sample(outputs, loose, self.draw(st.booleans()))


def _kind(operand: Operand) -> str:
    return "float" if operand.type in FLOATS else "byte" if operand.type in BYTES else "int"


def _same(have: Operand, wanted: Operand) -> bool:
    return (have.type, have.dimensions, have.scale, have.zero_point) == (
        wanted.type, wanted.dimensions, wanted.scale, wanted.zero_point,
    )  # fmt: skip


def _useful(operand: Operand, value: AnyArray) -> bool:
    if value.size > _MOST_ELEMENTS:
        return False
    return not value.size or bool(np.isfinite(value).all() and np.abs(value.astype(float)).max() <= _largest(operand))


def _largest(operand: Operand) -> float:
    return _LARGEST.get(T(operand.type), np.inf)


def _loosened(operand: Operand, how: str) -> Operand:
    """The operand with dimensions left to the execution: the first, or all of them."""
    if (
        not how
        or operand.lifetime in (_CONSTANT, OperandLifeTime.NO_VALUE)
        or not operand.dimensions
        or operand.extra_params is not None
    ):
        return operand
    if how == "batch" and operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT:
        return replace(operand, dimensions=(0, *operand.dimensions[1:]))
    return replace(operand, dimensions=(0,) * len(operand.dimensions))


def _placed(operand: Operand, value: AnyArray | None, data: bytearray, is_output: bool) -> Operand:
    if operand.lifetime == _CONSTANT:
        assert value is not None
        location = DataLocation(0, len(data), value.nbytes)
        data += value.tobytes() + bytes(-value.nbytes % 4)
        return replace(operand, location=location) if value.nbytes else _empty(operand)
    return replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT) if is_output else operand


def _empty(operand: Operand) -> Operand:
    return replace(operand, lifetime=OperandLifeTime.NO_VALUE)


@st.composite
def graphs(draw: st.DrawFn) -> Sample:
    """A graph of 3 to 12 operations, sometimes as the body of an IF or a WHILE."""
    graph = Grower(draw=draw)
    for _ in range(draw(st.integers(0, 2))):
        graph.start()
    wanted = draw(st.integers(3, _MOST_OPERATIONS))
    for _ in range(3 * wanted):
        if len(graph.operations) >= wanted:
            break
        graph.grow()
    made = graph.finished()
    how = draw(st.sampled_from([None] * 20 + [in_if, in_while, with_empty_batch]))
    return made if how is None else how(made)


def with_empty_batch(made: Sample) -> Sample:
    """The graph with a SLICE before one input that leaves an empty batch: a request cannot give one."""
    inner, data = made.model.main, bytearray(made.model.operand_values)
    cut = next((k for k, i in enumerate(inner.input_indexes) if _can_be_cut(inner.operands[i])), None)
    if cut is None:
        return made
    index, value = inner.input_indexes[cut], made.inputs[cut]
    vector = Operand(I32, (value.ndim,))
    operands = [
        *inner.operands,
        replace(inner.operands[index], lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        _placed(replace(vector, lifetime=_CONSTANT), np.zeros(value.ndim, np.int32), data, False),
        replace(vector, lifetime=OperandLifeTime.SUBGRAPH_INPUT),
    ]
    operands[index] = replace(operands[index], lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
    whole, begin, size = (len(operands) - 3 + k for k in range(3))
    inputs = [whole if i == index else i for i in inner.input_indexes]
    main = Subgraph(
        tuple(_loosened(one, "all") for one in operands),
        (Operation(Op.SLICE, (whole, begin, size), (index,)), *inner.operations),
        (*inputs, size),
        inner.output_indexes,
    )
    arrays = [*made.inputs, np.array([0, *value.shape[1:]], np.int32)]
    return Sample(replace(made.model, main=main, operand_values=bytes(data)), arrays, (), ())


def _can_be_cut(operand: Operand) -> bool:
    return operand.type in (*FLOATS, *BYTES, I32) and len(operand.dimensions) <= _HIGHEST_RANK


def in_if(made: Sample) -> Sample:
    """The graph in both branches of an IF."""
    inner = made.model.main
    operands = [Operand(B8, (1,), lifetime=OperandLifeTime.SUBGRAPH_INPUT)]
    operands += [_reference(0), _reference(1)]
    return _around(made, Op.IF, operands, (inner, inner), [np.array([True])])


def in_while(made: Sample) -> Sample:
    """The graph in the body of a WHILE that runs twice: a counter and the outputs change, the inputs stay."""
    if not all(value.size for value in made.expected):
        return made  # no request can give what the loop starts from
    inner, data = made.model.main, bytearray(made.model.operand_values)
    limit, one, none = (np.array(n, np.int32) for n in ([2], [1], 0))
    counter = Operand(I32, (1,), lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    kept = [replace(inner.operands[o], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for o in inner.output_indexes]
    # operands of the body: its own, then the counter, the old outputs, and what counts up
    base = len(inner.operands)
    body_operands = [*inner.operands, counter, *kept]
    body_operands += [_placed(Operand(I32, (1,), lifetime=_CONSTANT), one, data, False)]
    body_operands += [_placed(Operand(T.INT32, lifetime=_CONSTANT), none, data, False)]
    body_operands += [Operand(I32, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)]
    last = len(body_operands) - 1
    state = tuple(range(base, base + 1 + len(kept)))
    body = Subgraph(
        tuple(body_operands),
        (*inner.operations, Operation(Op.ADD, (base, last - 2, last - 1), (last,))),
        (*state, *inner.input_indexes),
        (last, *inner.output_indexes),
    )
    given = [replace(inner.operands[i], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for i in inner.input_indexes]
    condition_operands = [counter, *kept, *given]
    condition_operands.append(_placed(Operand(I32, (1,), lifetime=_CONSTANT), limit, data, False))
    condition_operands.append(Operand(B8, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
    count = len(condition_operands)
    less = Operation(Op.LESS, (0, count - 2), (count - 1,))
    condition = Subgraph(tuple(condition_operands), (less,), tuple(range(count - 2)), (count - 1,))
    operands = [_reference(0), _reference(1), counter, *kept]
    start = [np.zeros(1, np.int32), *(np.zeros_like(value) for value in made.expected)]
    model = replace(made.model, operand_values=bytes(data))
    outer = _around(replace(made, model=model), Op.WHILE, operands, (condition, body), start)
    return replace(outer, expected=[np.array([2], np.int32), *made.expected], errors=[np.zeros(()), *made.errors])


def _reference(number: int) -> Operand:
    return Operand(T.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(0, number, 0))


def _around(
    made: Sample, type_: Op, first: Sequence[Operand], referenced: tuple[Subgraph, ...], start: Sequence[AnyArray]
) -> Sample:
    """A model of one operation whose arguments are `first`, then the inputs of the graph."""
    inner = made.model.main
    given = [replace(inner.operands[i], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for i in inner.input_indexes]
    results = [inner.operands[o] for o in inner.output_indexes]
    if type_ == Op.WHILE:
        results.insert(0, Operand(I32, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
    operands = [*first, *given, *results]
    inputs = tuple(range(len(first) + len(given)))
    outputs = tuple(range(len(inputs), len(operands)))
    fed = tuple(i for i in inputs if operands[i].lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    main = Subgraph(tuple(operands), (Operation(type_, inputs, outputs),), fed, outputs)
    return replace(made, model=replace(made.model, main=main, referenced=referenced), inputs=[*start, *made.inputs])
