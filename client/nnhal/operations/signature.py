"""Tables of what an operation accepts: argument lists, combinations of types, ranks and further checks.

A signature is written as text that reads like the HAL's documentation:

    signature(
        OperationType.SOFTMAX,
        inputs="input:T beta:S [axis]",
        types='''
            T                           S
            TENSOR_FLOAT32              FLOAT32
            TENSOR_FLOAT16              FLOAT16
            TENSOR_QUANT8_ASYMM         FLOAT32
            TENSOR_QUANT8_ASYMM_SIGNED  FLOAT32
        ''',
        ranks={"input": (1, 4)},
    )

- An argument is `name:TYPE`, where TYPE is an operand type or a column of `types`; `name` alone is an INT32 scalar.
- `[...]` is a group of trailing arguments that may be left out. A later group needs the ones before it.
- `name:T+` is one or more arguments: `name0`, `name1`, ...
- `name:SHAPE` is a TENSOR_INT32 whose elements describe dimensions, for example axes, paddings or a shape.
- `name:T?` may be omitted: NO_VALUE in the model, or hasNoValue in the request.
- `outputs` is by default `output:T`, one output whose type is that of column T.
- A row of `types` is one allowed combination. `A|B` in a cell means either of them.
- `ranks` are checked only where the rank is known.
- `quantization` gives the scale and zero point of outputs, where the operation leaves no choice.
- `elementwise` and `batchwise` tell which parts of the output are computed independently.

These are the `[validation]` constraints of the operation files. They do not read values of constants (V-OPERATION-04).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from operator import itemgetter

from nnhal.types import Operand, OperandType, OperationType, is_tensor, type_name

Rank = int | tuple[int, int]
Quantization = str | Mapping[OperandType, tuple[float, int]]
"""Quantization of the outputs: the name of an input to copy it from, or scale and zero point by output type."""
UNIT_RANGE = {OperandType.TENSOR_QUANT8_ASYMM: (1 / 256, 0), OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128)}
"""Scale and zero point of outputs in 0..1."""
SIGNED_UNIT_RANGE = {
    OperandType.TENSOR_QUANT8_ASYMM: (1 / 128, 128),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 128, 0),
}
"""Scale and zero point of outputs in -1..1."""

_QUANT8 = "TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED"
FLOATS = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
"""
"""Types that many operations have in common."""
FLOATS_INT32 = f"{FLOATS}TENSOR_INT32\n"
FLOATS_QUANT8 = f"{FLOATS}{_QUANT8}\n"
FLOATS_INT32_QUANT8 = f"{FLOATS_INT32}{_QUANT8}\n"
FLOATS_WITH_SCALARS = """
    T               S
    TENSOR_FLOAT32  FLOAT32
    TENSOR_FLOAT16  FLOAT16
"""
"""Tensors, and scalars of the same precision."""


@dataclass(frozen=True)
class Argument:
    """One argument of a signature.

    Attributes:
        type: an operand type, or the name of a column of types.
        repeated: whether there may be several, numbered from 0.
        optional: whether it may have no value.
        is_shape: whether its elements describe dimensions.
    """

    name: str
    type: int | str
    repeated: bool = False
    optional: bool = False
    is_shape: bool = False


@dataclass(frozen=True)
class ArgumentList:
    """One accepted list of inputs or outputs: required arguments, then groups that may be left out."""

    name: str
    required: tuple[Argument, ...]
    groups: tuple[tuple[Argument, ...], ...] = ()

    def of_length(self, count: int) -> tuple[Argument, ...] | None:
        """Return the arguments of a list with `count` entries, or None if the list cannot have that many."""
        arguments = self.required
        for group in ((), *self.groups):
            arguments += group
            if any(argument.repeated for argument in arguments):
                return _expand_repeated(arguments, count)
            if len(arguments) == count:
                return arguments
        return None

    @property
    def lengths(self) -> list[str]:
        """Possible lengths of the list, as text."""
        if any(argument.repeated for argument in self.required):
            return [f"{len(self.required)} or more"]
        return [str(len(self.required) + sum(map(len, self.groups[:count]))) for count in range(len(self.groups) + 1)]


def _expand_repeated(arguments: Sequence[Argument], count: int) -> tuple[Argument, ...] | None:
    """Expand the repeated argument so that there are `count` arguments, or return None if there are too few."""
    extra = count - len(arguments)
    if extra < 0:
        return None
    expanded: list[Argument] = []
    for argument in arguments:
        if argument.repeated:
            expanded += [
                Argument(f"{argument.name}{i}", argument.type, optional=argument.optional) for i in range(extra + 1)
            ]
        else:
            expanded.append(argument)
    return tuple(expanded)


@dataclass(frozen=True)
class Arguments:
    """Operands of one operation, by the names of its signature.

    Attributes:
        form: name of the argument list that matched ("explicit padding").
        inputs, outputs: argument names, by position.
        optional: names of arguments that may be without a value.
        operands: the operand behind each name.
    """

    form: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optional: frozenset[str]
    operands: Mapping[str, Operand] = field(hash=False)

    def __getitem__(self, name: str) -> Operand:
        return self.operands[name]

    def get(self, name: str) -> Operand | None:
        """Return the operand, or None when the argument was left out."""
        return self.operands.get(name)


Check = Callable[[Arguments], str | None]
"""A further rule. It returns an error message, or None if the rule holds."""


@dataclass(frozen=True)
class Signature:
    """Constraints that model validation checks for one operation type.

    Attributes:
        scale_checks: further checks, of scales and zero points.
        quantization: quantization of the outputs (V-RUN-05). None if the model may choose it, or if it depends on
            values, so that only the shape rule can check it.
        elementwise: whether each element of the output is computed independently, with broadcasting.
        batchwise: whether each row of input 0 is computed independently. All other inputs are the same for each row.
    """

    type: OperationType
    inputs: tuple[ArgumentList, ...]
    outputs: ArgumentList
    rows: tuple[Mapping[str, int], ...] = field(hash=False)
    ranks: Mapping[str, Rank] = field(hash=False)
    checks: tuple[Check, ...] = ()
    scale_checks: tuple[Check, ...] = ()
    quantization: Quantization | None = field(default=None, hash=False)
    elementwise: bool = False
    batchwise: bool = False

    @cached_property
    def argument_names(self) -> frozenset[str]:
        """Names of all arguments of all forms."""
        return frozenset(
            argument.name
            for list_ in (*self.inputs, self.outputs)
            for group in (list_.required, *list_.groups)
            for argument in group
        )

    @cached_property
    def shape_arguments(self) -> Mapping[int, str]:
        """Names of the inputs whose elements describe dimensions in some form, by position."""
        return {i: a.name for form in self.inputs for i, a in enumerate(form.required) if a.is_shape}

    def output_quantization(self, inputs: Sequence[Operand], output: Operand) -> tuple[float, int] | None:
        """Return the scale and zero point that an output must have, or None if the model may choose (V-RUN-05)."""
        if self.quantization is None:
            return None
        if not isinstance(self.quantization, str):
            return self.quantization.get(OperandType(output.type))
        source = inputs[[argument.name for argument in self.inputs[0].required].index(self.quantization)]
        return (source.scale, source.zero_point) if source.type == output.type else None

    def bind(self, inputs: Sequence[Operand], outputs: Sequence[Operand], *, scales: bool = True) -> Arguments | str:
        """Return the operands by argument name, or an error message if they fit no form of the signature.

        `scales` tells whether to check scales and zero points, too.
        """
        candidates = [
            (form, arguments) for form in self.inputs if (arguments := form.of_length(len(inputs))) is not None
        ]
        if not candidates:
            return f"has {len(inputs)} inputs; it takes {_alternatives(self.inputs)}"
        results = self.outputs.of_length(len(outputs))
        if results is None:
            return f"has {len(outputs)} outputs; it has {_alternatives([self.outputs])}"
        operands = (*inputs, *outputs)
        mismatches = []
        for form, arguments in candidates:
            mismatch = self._nearest_mismatch((*arguments, *results), operands, len(inputs))
            if mismatch is None:
                bound = self._bound(form.name, arguments, results, operands)
                return self._error(bound, (*self.checks, *(self.scale_checks if scales else ()))) or bound
            mismatches.append(mismatch)
        return min(mismatches, key=itemgetter(0))[1]

    def _nearest_mismatch(
        self, arguments: Sequence[Argument], operands: Sequence[Operand], inputs: int
    ) -> tuple[int, str] | None:
        """Return the number of wrong types in the nearest row, and a message about them; or None if a row fits."""
        types = [operand.type for operand in operands]
        kinds = [argument.type for argument in arguments]
        rows = []
        for row in self.rows:
            expected = [row[kind] if isinstance(kind, str) else kind for kind in kinds]
            if expected == types:
                return None
            rows.append(expected)
        wrong = [[i for i, type_ in enumerate(types) if type_ != expected[i]] for expected in rows]
        nearest = min(range(len(rows)), key=lambda row: len(wrong[row]))
        return len(wrong[nearest]), _mismatch_message(arguments, operands, rows[nearest], wrong[nearest], inputs)

    def _bound(
        self, form: str, inputs: Sequence[Argument], outputs: Sequence[Argument], operands: Sequence[Operand]
    ) -> Arguments:
        names = [argument.name for argument in (*inputs, *outputs)]
        return Arguments(
            form,
            tuple(names[: len(inputs)]),
            tuple(names[len(inputs) :]),
            frozenset(argument.name for argument in (*inputs, *outputs) if argument.optional),
            dict(zip(names, operands, strict=True)),
        )

    def _error(self, bound: Arguments, checks: Sequence[Check]) -> str | None:
        for name, operand in bound.operands.items():
            rank = self.ranks.get(name) or self.ranks.get(name.rstrip("0123456789"))
            if rank is not None and (message := _rank_error(name, operand, rank)):
                return message
        return next((message for check in checks if (message := check(bound))), None)


def _alternatives(lists: Sequence[ArgumentList]) -> str:
    lengths = sorted({length for list_ in lists for length in list_.lengths}, key=lambda text: int(text.split()[0]))
    return lengths[0] if len(lengths) == 1 else f"{', '.join(lengths[:-1])} or {lengths[-1]}"


def _mismatch_message(
    arguments: Sequence[Argument],
    operands: Sequence[Operand],
    expected: Sequence[int],
    wrong: Sequence[int],
    inputs: int,
) -> str:
    parts = []
    for i in wrong:
        position = f"input {i}" if i < inputs else f"output {i - inputs}"
        parts.append(f"{position} ({arguments[i].name}) is {type_name(operands[i].type)}, not {type_name(expected[i])}")
    right = set(range(len(operands))).difference(wrong)
    context = [
        f"{arguments[i].name} {type_name(expected[i])}" for i in sorted(right) if isinstance(arguments[i].type, str)
    ]
    return "; ".join(parts) + (f" (with {', '.join(dict.fromkeys(context))})" if context else "")


def _rank_error(name: str, operand: Operand, rank: Rank) -> str | None:
    """Return an error message for a wrong rank. The rank of a tensor without dimensions is unknown, so it passes."""
    low, high = rank if isinstance(rank, tuple) else (rank, rank)
    actual = len(operand.dimensions)
    if not is_tensor(operand.type) or actual == 0 or low <= actual <= high:
        return None
    return f"{name} has rank {actual}; it must be {low if low == high else f'{low} to {high}'}"


# ---- Parsing of the tables -----------------------------------------------------------------------------------

SIGNATURES: dict[int, Signature] = {}
"""Every registered signature, by operation type."""


def signature(
    type_: OperationType,
    *,
    inputs: str | Mapping[str, str],
    outputs: str = "output:T",
    types: str = "",
    ranks: Mapping[str, Rank] | None = None,
    checks: Sequence[Check] = (),
    scale_checks: Sequence[Check] = (),
    quantization: Quantization | None = None,
    elementwise: bool = False,
    batchwise: bool = False,
) -> None:
    """Register the signature of an operation. The module's docstring explains the notation.

    Raises:
        ValueError: the table is malformed, or the operation already has a signature.
    """
    forms = {"": inputs} if isinstance(inputs, str) else inputs
    rows = _rows(types)
    lists = tuple(_argument_list(name, text, rows) for name, text in forms.items())
    parsed = Signature(
        type_,
        lists,
        _argument_list("", outputs, rows),
        rows,
        ranks or {},
        tuple(checks),
        tuple(scale_checks),
        quantization,
        elementwise,
        batchwise,
    )
    if type_ in SIGNATURES:
        raise ValueError(f"{type_.name} has two signatures")
    if unknown := set(parsed.ranks) - parsed.argument_names:
        raise ValueError(f"{type_.name} has ranks for unknown arguments {sorted(unknown)}")
    if isinstance(quantization, str) and quantization not in parsed.argument_names:
        raise ValueError(f"{type_.name} takes its quantization from the unknown argument {quantization}")
    SIGNATURES[type_] = parsed


def _rows(text: str) -> tuple[Mapping[str, int], ...]:
    lines = [line.split() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ({},)
    columns, *body = lines
    rows: list[Mapping[str, int]] = []
    for cells in body:
        choices = [[int(OperandType[name]) for name in cell.split("|")] for cell in cells]
        rows += [dict(zip(columns, row, strict=True)) for row in product(*choices)]
    return tuple(rows)


def _argument_list(name: str, text: str, rows: tuple[Mapping[str, int], ...]) -> ArgumentList:
    required, *groups = re.split(r"\[|\]\s*\[?", text.strip().removesuffix("]"))
    first, *rest = [tuple(_argument(word, rows[0]) for word in group.split()) for group in (required, *groups)]
    return ArgumentList(name, first, tuple(rest))


def _argument(word: str, columns: Mapping[str, int]) -> Argument:
    name, _, type_ = word.partition(":")
    mark = type_[-1:] if type_.endswith(("+", "?")) else ""
    type_ = type_.removesuffix(mark) or "INT32"
    if is_shape := type_ == "SHAPE":
        type_ = "TENSOR_INT32"
    return Argument(name, type_ if type_ in columns else int(OperandType[type_]), mark == "+", mark == "?", is_shape)
