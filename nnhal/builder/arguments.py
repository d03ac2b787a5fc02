"""From what was given for the arguments of an operation to operands, by the operation's signature.

A number or a sequence of numbers takes whatever type of its kind the signature has at its place; an array keeps its
dtype. The best form and row of types is the one that the most arguments fit; the complaint is the signature's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.builder.rules import SCALED
from nnhal.operations import Signature
from nnhal.operations.signature import Argument, ArgumentList
from nnhal.types import DTYPES, SCALAR_TYPES, AnyArray, Operand, OperandLifeTime, type_name
from nnhal.types import OperandType as T

_OF_NUMBERS: dict[str, tuple[T, ...]] = {
    "b": (T.BOOL, T.TENSOR_BOOL8),
    "i": (T.INT32, T.FLOAT32, T.FLOAT16, T.TENSOR_INT32, T.TENSOR_FLOAT32, T.TENSOR_FLOAT16),
    "f": (T.FLOAT32, T.FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_FLOAT16),
}
"""Types that numbers may become, by the kind of their dtype; what they are by themselves comes first."""
_OF_ARRAYS = {DTYPES[type_]: type_ for type_ in (T.TENSOR_FLOAT32, T.TENSOR_INT32, T.TENSOR_FLOAT16, T.TENSOR_BOOL8)}
"""The type of an array, where its dtype tells it."""


RULE = "V-OPERATION-04"
"""What an operation's signature demands."""


class Unfit(Exception):
    """A complaint about an argument or an operation: what is wrong and what would be right, and the rule broken."""

    def __init__(self, text: str, rule: str = "") -> None:
        self.rule = rule
        super().__init__(text)


@dataclass(frozen=True)
class Given:
    """An argument as it was given.

    Attributes:
        types: operand types that it can be; what it is by itself comes first.
        text: what a person calls it.
        operand: where it is an operand already.
        value: where it is a value.
    """

    types: tuple[int, ...]
    text: str
    operand: Operand | None = None
    value: AnyArray | None = None

    @property
    def omitted(self) -> bool:
        """Whether None was given."""
        return self.operand is None and self.value is None

    def as_operand(self, type_: int) -> Operand:
        """The operand that it becomes where one of this type is wanted; another type where it cannot be that."""
        if self.operand is not None:
            return self.operand
        if self.value is not None:
            return Operand(type_ if type_ in self.types else self.types[0], self.value.shape)
        # an operand without a value obeys the rules too: a quantised one has some scale
        return Operand(type_, scale=1.0 if type_ in SCALED else 0.0, lifetime=OperandLifeTime.NO_VALUE)


@dataclass(frozen=True)
class Form:
    """One list of arguments of a signature with one row of its types. `distance`: how many arguments do not fit."""

    arguments: tuple[Argument, ...]
    types: tuple[int, ...]
    distance: int


def omitted() -> Given:
    """What None is."""
    return Given((), "None")


def of_value(value: object) -> Given:
    """What a number, an array, or a sequence of numbers is.

    Raises:
        Unfit: it is none of them.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise Unfit(f"is no array: {error}") from None
    kind = "i" if array.dtype.kind == "u" else array.dtype.kind
    if array.dtype.kind not in "biuf":
        what = "an operand, a number, an array, a sequence of numbers or None is wanted"
        raise Unfit(f"is a {type(value).__name__}; {what}")
    if is_array(value):
        types: tuple[int, ...] = (_OF_ARRAYS[array.dtype],) if array.dtype in _OF_ARRAYS else ()
        text = f"array of {array.dtype} {list(array.shape)}"
    else:
        types = tuple(type_ for type_ in _OF_NUMBERS[kind] if (type_ in SCALAR_TYPES) == (array.ndim == 0))
        text = str(value)
    return Given(types, text, value=array)


def is_array(value: object) -> bool:
    """Whether a value has a dtype that counts: a number with one may still become another."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def converted(given: Given, type_: int) -> AnyArray:
    """The value as an operand of a base type holds it.

    Raises:
        Unfit: the type cannot hold it.
    """
    assert given.value is not None
    dtype = DTYPES[type_]
    value = given.value
    if value.dtype == dtype:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        made = value.astype(dtype)
    kept = np.array_equal(np.isfinite(made), np.isfinite(value)) if dtype.kind == "f" else np.array_equal(made, value)
    if not kept:
        raise Unfit(f"is {given.text}, which {type_name(type_)} cannot hold")
    return made


# ---- Against a signature ----------------------------------------------------------------------------------


def fit(signature: Signature, given: Sequence[Given], outputs: Sequence[Operand]) -> list[Operand]:
    """The operands of an operation's inputs.

    Raises:
        Unfit: they are not what the signature says (V-OPERATION-04); names the argument.
    """
    form = _nearest(signature, given, outputs)
    if form is None:
        counts = signature.bind([Operand()] * len(given), outputs)
        raise Unfit(f"{counts}: {_usage(signature)}", RULE)
    names = [argument.name for argument in form.arguments]
    for i, one in enumerate(given):
        if complaint := _unusable(one, form.arguments[i], form.types[i]):
            raise Unfit(f"input {i} ({names[i]}) {complaint}", RULE)
    operands = [one.as_operand(form.types[i]) for i, one in enumerate(given)]
    bound = signature.bind(operands, outputs)
    if isinstance(bound, str):
        pairs = (f"{name} = {one.text}" for name, one in zip(names, given, strict=False))
        raise Unfit(f"{bound}; given {', '.join(pairs)}", RULE)
    return operands


def _nearest(signature: Signature, given: Sequence[Given], outputs: Sequence[Operand]) -> Form | None:
    """The form that the most arguments fit, the first of equals; None when no form has so many."""
    results = signature.outputs.of_length(len(outputs))
    if results is None:
        return None
    best: Form | None = None
    everything = (*given, *(Given((output.type,), "", output) for output in outputs))
    for inputs in signature.inputs:
        if (arguments := inputs.of_length(len(given))) is None:
            continue
        wanted = (*arguments, *results)
        for row in signature.rows:
            types = tuple(row[a.type] if isinstance(a.type, str) else a.type for a in wanted)
            fitting = (
                a.optional if one.omitted else t in one.types
                for one, a, t in zip(everything, wanted, types, strict=True)
            )
            distance = sum(not fits for fits in fitting)
            if best is None or distance < best.distance:
                best = Form(wanted, types, distance)
    return best


def _unusable(given: Given, argument: Argument, wanted: int) -> str | None:
    """Complains about what cannot become any operand here."""
    if given.omitted:
        return None if argument.optional else f"is None, but may not be omitted: it is a {type_name(wanted)}"
    if given.operand is not None:
        return None
    if not given.types:
        return _untyped(given, wanted)
    try:
        converted(given, given.as_operand(wanted).type)
    except Unfit as unfit:
        return str(unfit)
    return None


def _untyped(given: Given, wanted: int) -> str:
    """Complains about an array whose dtype does not tell its type."""
    if wanted in _OF_ARRAYS.values():
        return f"is an {given.text}, not {type_name(wanted)}: convert it with astype(np.{DTYPES[wanted]})"
    return (
        f"is an {given.text}, which does not tell what {type_name(wanted)} it is: "
        f"make it an operand with constant(array, type, scale=...)"
    )


def _usage(signature: Signature) -> str:
    """The inputs and outputs of an operation, as its documentation would show them."""
    forms = (f"{inputs.name + ': ' if inputs.name else ''}{_listed(inputs)}" for inputs in signature.inputs)
    return f"inputs {' or '.join(forms)}; outputs {_listed(signature.outputs)}"


def _listed(arguments: ArgumentList) -> str:
    parts = [
        [f"{a.name}..." if a.repeated else a.name for a in part] for part in (arguments.required, *arguments.groups)
    ]
    return "(" + ", ".join(parts[0]) + "".join(f" [{', '.join(part)}]" for part in parts[1:]) + ")"


def natural(given: Given) -> Operand:
    """The operand that something is by itself, where no signature says what is wanted.

    Raises:
        Unfit: that is not known.
    """
    if given.omitted:
        raise Unfit("is None, whose type is not known here")
    if given.operand is None and not given.types:
        raise Unfit(f"is an {given.text}, which does not tell its operand type: make it with constant(array, type)")
    return given.as_operand(given.types[0])
