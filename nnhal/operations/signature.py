"""What an operation accepts, as a table: argument lists, the types they take together, ranks, and further checks.

A signature is written as text that reads like the HAL's documentation:

    signature(
        OperationType.SOFTMAX,
        inputs="input:T beta:S [axis]",
        outputs="output:T",
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
- `[...]` is a group of trailing arguments that may be left out; a later group needs the ones before it.
- `name:T+` is one or more arguments: `name0`, `name1`, ...
- `name:T?` may be omitted: NO_VALUE in the model, or hasNoValue in the request.
- A row of `types` is one allowed combination; `A|B` in a cell stands for either.
- `ranks` are looked at only where the rank is known.
- `quantization` says what the scale and zero point of outputs must be, where the operation leaves no choice.

These are the `[validation]` constraints of the operation files: values of constants are never read (V-OPERATION-04).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from nnhal.types import Operand, OperandType, OperationType, is_tensor, type_name

Rank = int | tuple[int, int]
Quantization = str | Mapping[OperandType, tuple[float, int]]
"""The input whose scale and zero point the outputs of its type have; or scale and zero point by the output's type."""
FROM_ZERO = {OperandType.TENSOR_QUANT8_ASYMM: (1 / 256, 0), OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128)}
"""Of outputs in 0..1."""
AROUND_ZERO = {OperandType.TENSOR_QUANT8_ASYMM: (1 / 128, 128), OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 128, 0)}
"""Of outputs in -1..1."""


@dataclass(frozen=True)
class Argument:
    """One argument. `type`: an operand type, or the name of a column of types."""

    name: str
    type: int | str
    repeated: bool = False
    optional: bool = False


@dataclass(frozen=True)
class ArgumentList:
    """One accepted list of inputs (or of outputs): required arguments, then groups that may be left out."""

    name: str
    required: tuple[Argument, ...]
    groups: tuple[tuple[Argument, ...], ...] = ()

    def of_length(self, count: int) -> tuple[Argument, ...] | None:
        """The arguments of a list with `count` entries, or None if it cannot have so many."""
        arguments = self.required
        for group in ((), *self.groups):
            arguments += group
            if any(argument.repeated for argument in arguments):
                return _spread(arguments, count)
            if len(arguments) == count:
                return arguments
        return None

    @property
    def lengths(self) -> list[str]:
        """The possible lengths, in words."""
        if any(argument.repeated for argument in self.required):
            return [f"{len(self.required)} or more"]
        return [str(len(self.required) + sum(map(len, self.groups[:count]))) for count in range(len(self.groups) + 1)]


def _spread(arguments: Sequence[Argument], count: int) -> tuple[Argument, ...] | None:
    """Expands the repeated argument so that there are `count`."""
    extra = count - len(arguments)
    if extra < 0:
        return None
    out: list[Argument] = []
    for argument in arguments:
        if argument.repeated:
            out += [
                Argument(f"{argument.name}{i}", argument.type, optional=argument.optional) for i in range(extra + 1)
            ]
        else:
            out.append(argument)
    return tuple(out)


@dataclass(frozen=True)
class Arguments:
    """The operands of one operation by the names of its signature.

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
        """The operand, or None when the argument was left out."""
        return self.operands.get(name)


Check = Callable[[Arguments], str | None]
"""A further rule: says what is wrong, or None."""


@dataclass(frozen=True)
class Mismatch:
    """Why operands fit no form of a signature. `distance`: how far off the nearest form is."""

    complaint: str
    distance: int


@dataclass(frozen=True)
class Signature:
    """Everything that model validation asks of one operation type.

    Attributes:
        quantization: of the outputs (V-RUN-05); None where the model may choose it, or only the shape rule can say it.
    """

    type: OperationType
    inputs: tuple[ArgumentList, ...]
    outputs: ArgumentList
    rows: tuple[Mapping[str, int], ...] = field(hash=False)
    ranks: Mapping[str, Rank] = field(hash=False)
    checks: tuple[Check, ...] = ()
    quantization: Quantization | None = field(default=None, hash=False)

    @cached_property
    def argument_names(self) -> frozenset[str]:
        """Names of all arguments of all forms."""
        lists = (*self.inputs, self.outputs)
        return frozenset(a.name for one in lists for part in (one.required, *one.groups) for a in part)

    def output_quantization(self, inputs: Sequence[Operand], output: Operand) -> tuple[float, int] | None:
        """Scale and zero point that an output must have, as far as `quantization` says it (V-RUN-05)."""
        if self.quantization is None:
            return None
        if not isinstance(self.quantization, str):
            return self.quantization.get(OperandType(output.type))
        source = inputs[[argument.name for argument in self.inputs[0].required].index(self.quantization)]
        return (source.scale, source.zero_point) if source.type == output.type else None

    def bind(self, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> Arguments | str:
        """Finds the form that the operands fit, or says what is wrong and what would be right."""
        candidates = [(one, found) for one in self.inputs if (found := one.of_length(len(inputs))) is not None]
        if not candidates:
            return f"has {len(inputs)} inputs; it takes {_alternatives(self.inputs)}"
        results = self.outputs.of_length(len(outputs))
        if results is None:
            return f"has {len(outputs)} outputs; it has {_alternatives([self.outputs])}"
        operands = (*inputs, *outputs)
        misfits = []
        for one, arguments in candidates:
            misfit = self._misfit((*arguments, *results), operands, len(inputs))
            if misfit is None:
                return self._checked(one.name, arguments, results, operands)
            misfits.append(misfit)
        return min(misfits, key=lambda misfit: misfit.distance).complaint

    def _misfit(self, arguments: Sequence[Argument], operands: Sequence[Operand], inputs: int) -> Mismatch | None:
        """The nearest row of types, unless one fits."""
        best: Mismatch | None = None
        for row in self.rows:
            wanted = [row[a.type] if isinstance(a.type, str) else a.type for a in arguments]
            wrong = [i for i, operand in enumerate(operands) if operand.type != wanted[i]]
            if not wrong:
                return None
            if best is None or len(wrong) < best.distance:
                best = Mismatch(_complaint(arguments, operands, wanted, wrong, inputs), len(wrong))
        return best

    def _checked(
        self, form: str, inputs: Sequence[Argument], outputs: Sequence[Argument], operands: Sequence[Operand]
    ) -> Arguments | str:
        names = [argument.name for argument in (*inputs, *outputs)]
        bound = Arguments(
            form,
            tuple(names[: len(inputs)]),
            tuple(names[len(inputs) :]),
            frozenset(argument.name for argument in (*inputs, *outputs) if argument.optional),
            dict(zip(names, operands, strict=True)),
        )
        for name, operand in bound.operands.items():
            rank = self.ranks.get(name) or self.ranks.get(name.rstrip("0123456789"))
            if rank is not None and (complaint := _wrong_rank(name, operand, rank)):
                return complaint
        return next((complaint for check in self.checks if (complaint := check(bound))), bound)


def _alternatives(lists: Sequence[ArgumentList]) -> str:
    lengths = sorted({length for one in lists for length in one.lengths}, key=lambda text: int(text.split()[0]))
    return lengths[0] if len(lengths) == 1 else f"{', '.join(lengths[:-1])} or {lengths[-1]}"


def _complaint(
    arguments: Sequence[Argument], operands: Sequence[Operand], wanted: Sequence[int], wrong: Sequence[int], inputs: int
) -> str:
    parts = []
    for i in wrong:
        place = f"input {i}" if i < inputs else f"output {i - inputs}"
        parts.append(f"{place} ({arguments[i].name}) is {type_name(operands[i].type)}, not {type_name(wanted[i])}")
    right = set(range(len(operands))).difference(wrong)
    context = [
        f"{arguments[i].name} {type_name(wanted[i])}" for i in sorted(right) if isinstance(arguments[i].type, str)
    ]
    return "; ".join(parts) + (f" (with {', '.join(dict.fromkeys(context))})" if context else "")


def _wrong_rank(name: str, operand: Operand, rank: Rank) -> str | None:
    """A rank counts as unknown when the operand is a tensor without dimensions."""
    low, high = rank if isinstance(rank, tuple) else (rank, rank)
    found = len(operand.dimensions)
    if not is_tensor(operand.type) or found == 0 or low <= found <= high:
        return None
    return f"{name} has rank {found}; it must be {low if low == high else f'{low} to {high}'}"


# ---- The table's text -----------------------------------------------------------------------------------

SIGNATURES: dict[int, Signature] = {}
"""Every registered signature, by operation type."""


def signature(
    type_: OperationType,
    *,
    inputs: str | Mapping[str, str],
    outputs: str,
    types: str = "",
    ranks: Mapping[str, Rank] | None = None,
    checks: Sequence[Check] = (),
    quantization: Quantization | None = None,
) -> None:
    """Registers the signature of an operation; see the module's docstring for the notation.

    Raises:
        ValueError: the table is malformed, or the operation has a signature already.
    """
    forms = {"": inputs} if isinstance(inputs, str) else inputs
    rows = _rows(types)
    lists = tuple(_argument_list(name, text, rows) for name, text in forms.items())
    made = Signature(type_, lists, _argument_list("", outputs, rows), rows, ranks or {}, tuple(checks), quantization)
    if type_ in SIGNATURES:
        raise ValueError(f"{type_.name} has two signatures")
    if unknown := set(made.ranks) - made.argument_names:
        raise ValueError(f"{type_.name} has ranks for unknown arguments {sorted(unknown)}")
    if isinstance(quantization, str) and quantization not in made.argument_names:
        raise ValueError(f"{type_.name} has the quantization of an unknown argument {quantization}")
    SIGNATURES[type_] = made


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
    parsed = [tuple(_argument(word, rows[0]) for word in part.split()) for part in (required, *groups)]
    return ArgumentList(name, parsed[0], tuple(parsed[1:]))


def _argument(word: str, columns: Mapping[str, int]) -> Argument:
    name, _, type_ = word.partition(":")
    mark = type_[-1:] if type_.endswith(("+", "?")) else ""
    type_ = type_.removesuffix(mark) or "INT32"
    return Argument(name, type_ if type_ in columns else int(OperandType[type_]), mark == "+", mark == "?")
