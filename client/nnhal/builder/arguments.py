"""Conversion of the arguments of `GraphBuilder.add` to operands, by the operation's signature.

A number or a sequence of numbers may become any type of its kind; an array keeps its dtype. The form and the row of
types that fit the most arguments are used. The signature itself reports what does not fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.operations import Signature
from nnhal.operations.signature import Argument, ArgumentList
from nnhal.rules.operand import SCALED_TYPES
from nnhal.types import DTYPES, SCALAR_TYPES, AnyArray, Operand, OperandLifeTime, type_name
from nnhal.types import OperandType as T

_NUMBER_TYPES: dict[str, tuple[T, ...]] = {
    "b": (T.BOOL, T.TENSOR_BOOL8),
    "i": (T.INT32, T.FLOAT32, T.FLOAT16, T.TENSOR_INT32, T.TENSOR_FLOAT32, T.TENSOR_FLOAT16),
    "f": (T.FLOAT32, T.FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_FLOAT16),
}
"""Types that numbers may become, by the kind of their dtype. The default comes first."""
_ARRAY_TYPES = {DTYPES[type_]: type_ for type_ in (T.TENSOR_FLOAT32, T.TENSOR_INT32, T.TENSOR_FLOAT16, T.TENSOR_BOOL8)}
"""Operand types of arrays, for the dtypes that determine them."""


SIGNATURE_RULE = "V-OPERATION-04"
"""Id of the rule that an operation matches its signature."""


class ArgumentError(Exception):
    """An argument or an operation is invalid. The text says what is wrong and what is expected.

    Attributes:
        rule: id of the broken rule, or "".
    """

    def __init__(self, text: str, rule: str = "") -> None:
        self.rule = rule
        super().__init__(text)


def require_type(value: object, kind: type, name: str, expected: str) -> None:
    """Check the type of an argument that does not become an operand.

    Raises:
        TypeError: it has another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}); expected {expected}")


@dataclass(frozen=True)
class CallArgument:
    """An argument of `add`, before the signature is applied.

    Attributes:
        types: operand types that the argument can have. The default comes first.
    """

    types: tuple[int, ...]
    text: str
    operand: Operand | None = None
    value: AnyArray | None = None

    @property
    def omitted(self) -> bool:
        """True if the argument is None."""
        return self.operand is None and self.value is None

    def as_operand(self, type_: int) -> Operand:
        """Return the operand for an input of type `type_`, with its default type if it cannot have that one."""
        if self.operand is not None:
            return self.operand
        if self.value is not None:
            return Operand(type_ if type_ in self.types else self.types[0], self.value.shape)
        # The rules also hold for an operand without a value: a quantized one needs some scale.
        return Operand(type_, scale=1.0 if type_ in SCALED_TYPES else 0.0, lifetime=OperandLifeTime.NO_VALUE)


@dataclass(frozen=True)
class SignatureMatch:
    """A list of arguments of a signature with one row of its types. `distance`: number of arguments that do not fit."""

    arguments: tuple[Argument, ...]
    types: tuple[int, ...]
    distance: int


def value_argument(value: object) -> CallArgument:
    """Return the argument for a number, an array or a sequence of numbers.

    Raises:
        ArgumentError: the value is of another kind.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"cannot be converted to an array: {error}") from None
    kind = "i" if array.dtype.kind == "u" else array.dtype.kind
    if array.dtype.kind not in "biuf":
        expected = "an operand, a number, an array, a sequence of numbers or None"
        raise ArgumentError(f"is a {type(value).__name__}; expected {expected}")
    if is_array(value):
        types: tuple[int, ...] = (_ARRAY_TYPES[array.dtype],) if array.dtype in _ARRAY_TYPES else ()
        text = f"array of {array.dtype} {list(array.shape)}"
    else:
        types = tuple(type_ for type_ in _NUMBER_TYPES[kind] if (type_ in SCALAR_TYPES) == (array.ndim == 0))
        text = str(value)
    return CallArgument(types, text, value=array)


def is_array(value: object) -> bool:
    """Return whether a value keeps its dtype. A numpy scalar does not: it may become another type of number."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def convert_value(argument: CallArgument, type_: int) -> AnyArray:
    """Return the value of an argument in the dtype of a base type.

    Raises:
        ArgumentError: the type cannot hold the value.
    """
    assert argument.value is not None
    dtype = DTYPES[type_]
    value = argument.value
    if value.dtype == dtype:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        converted = value.astype(dtype)
    exact = (
        np.array_equal(np.isfinite(converted), np.isfinite(value))
        if dtype.kind == "f"
        else np.array_equal(converted, value)
    )
    if not exact:
        raise ArgumentError(f"is {argument.text}, which {type_name(type_)} cannot hold")
    return converted


# ---- Against a signature ----------------------------------------------------------------------------------


def fit_to_signature(
    signature: Signature, arguments: Sequence[CallArgument], outputs: Sequence[Operand]
) -> list[Operand]:
    """Return the operands of an operation's inputs.

    Raises:
        ArgumentError: the arguments do not match the signature (V-OPERATION-04).
    """
    match = _nearest_match(signature, arguments, outputs)
    if match is None:
        counts = signature.bind([Operand()] * len(arguments), outputs)
        raise ArgumentError(f"{counts}: {_usage(signature)}", SIGNATURE_RULE)
    names = [argument.name for argument in match.arguments]
    for i, argument in enumerate(arguments):
        if problem := _conversion_problem(argument, match.arguments[i], match.types[i]):
            raise ArgumentError(f"input {i} ({names[i]}) {problem}", SIGNATURE_RULE)
    operands = [argument.as_operand(match.types[i]) for i, argument in enumerate(arguments)]
    bound = signature.bind(operands, outputs)
    if isinstance(bound, str):
        pairs = (f"{name} = {argument.text}" for name, argument in zip(names, arguments, strict=False))
        raise ArgumentError(f"{bound}; given {', '.join(pairs)}", SIGNATURE_RULE)
    return operands


def _nearest_match(
    signature: Signature, arguments: Sequence[CallArgument], outputs: Sequence[Operand]
) -> SignatureMatch | None:
    """Return the first of the matches with the most fitting arguments, or None if no form has so many arguments."""
    results = signature.outputs.of_length(len(outputs))
    if results is None:
        return None
    best: SignatureMatch | None = None
    everything = (*arguments, *(CallArgument((output.type,), "", output) for output in outputs))
    for inputs in signature.inputs:
        if (parameters := inputs.of_length(len(arguments))) is None:
            continue
        parameters = (*parameters, *results)
        for row in signature.rows:
            types = tuple(row[p.type] if isinstance(p.type, str) else p.type for p in parameters)
            distance = sum(
                not (parameter.optional if argument.omitted else type_ in argument.types)
                for argument, parameter, type_ in zip(everything, parameters, types, strict=True)
            )
            if best is None or distance < best.distance:
                best = SignatureMatch(parameters, types, distance)
    return best


def _conversion_problem(argument: CallArgument, parameter: Argument, type_: int) -> str | None:
    """Return a message if an argument cannot become any operand at its position, else None."""
    if argument.omitted:
        return None if parameter.optional else f"is None, but may not be omitted: it is a {type_name(type_)}"
    if argument.operand is not None:
        return None
    if not argument.types:
        return _ambiguous_array(argument, type_)
    try:
        convert_value(argument, argument.as_operand(type_).type)
    except ArgumentError as error:
        return str(error)
    return None


def _ambiguous_array(argument: CallArgument, type_: int) -> str:
    """Return the message for an array whose dtype does not determine its operand type."""
    if type_ in _ARRAY_TYPES.values():
        return f"is an {argument.text}, not {type_name(type_)}: convert it with astype(np.{DTYPES[type_]})"
    return (
        f"is an {argument.text}, which does not determine the scale of a {type_name(type_)}: "
        f"make it an operand with constant(array, type, scale=...)"
    )


def _usage(signature: Signature) -> str:
    """Return the inputs and outputs of an operation in the notation of its documentation."""
    forms = (f"{inputs.name + ': ' if inputs.name else ''}{_format_arguments(inputs)}" for inputs in signature.inputs)
    return f"inputs {' or '.join(forms)}; outputs {_format_arguments(signature.outputs)}"


def _format_arguments(arguments: ArgumentList) -> str:
    groups = [
        [f"{a.name}..." if a.repeated else a.name for a in group] for group in (arguments.required, *arguments.groups)
    ]
    return "(" + ", ".join(groups[0]) + "".join(f" [{', '.join(group)}]" for group in groups[1:]) + ")"


def default_operand(argument: CallArgument) -> Operand:
    """Return the operand of an argument for which no signature requires a type.

    Raises:
        ArgumentError: the argument does not determine its operand type.
    """
    if argument.omitted:
        raise ArgumentError("is None, whose type is not known here")
    if argument.operand is None and not argument.types:
        raise ArgumentError(
            f"is an {argument.text}, which does not tell its operand type: make it with constant(array, type)"
        )
    return argument.as_operand(argument.types[0])
