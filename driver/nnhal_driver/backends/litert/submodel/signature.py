"""Signatures of operators: the types that LiteRT's kernels take together.

A signature is text such as `f32 i8 f32? -> f32`: the types of the inputs, an arrow, and the types of the outputs.
`f32|i8` allows either. `T` is one type for all tensors with this letter: `T:f32|i8 T -> T`. A `?` marks an input that
may be omitted, a `*` a tensor that occurs any number of times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_NAMES = {
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "i4": "INT4",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "c64": "COMPLEX64",
    "bool": "BOOL",
}


@dataclass(frozen=True, slots=True)
class TypePattern:
    """Types of one tensor.

    Attributes:
        types: the allowed types; None if an earlier tensor fixes the type.
        variable: the letter that stands for the type, or "".
        optional: whether the tensor may be omitted.
    """

    types: frozenset[str] | None
    variable: str
    optional: bool


class TypeSignature:
    """A parsed signature."""

    def __init__(self, text: str) -> None:
        inputs, outputs = text.split("->")
        *_, last = ["", *inputs.split()]
        self.repeats_inputs = last.endswith("*")
        self.repeats_outputs = outputs.strip().endswith("*")
        self._inputs = [_pattern(word) for word in inputs.split()]
        self._outputs = [_pattern(word) for word in outputs.split()]
        self.min_inputs = sum(not pattern.optional for pattern in self._inputs)
        self.max_inputs = None if self.repeats_inputs else len(self._inputs)
        self.outputs = None if self.repeats_outputs else len(self._outputs)

    def matches(self, inputs: Sequence[str | None], outputs: Sequence[str]) -> bool:
        """Return whether tensors have the types of the signature. None is an omitted tensor."""
        bound: dict[str, str] = {}
        return _match(self._inputs, inputs, self.repeats_inputs, bound) and _match(
            self._outputs, outputs, self.repeats_outputs, bound
        )


def _pattern(word: str) -> TypePattern:
    optional, word = "?" in word or "*" in word, word.rstrip("?*")
    variable, _, types = word.rpartition(":") if ":" in word or not word.isupper() else (word, "", "")
    return TypePattern(frozenset(_NAMES[name] for name in types.split("|")) if types else None, variable, optional)


def _match(patterns: Sequence[TypePattern], types: Sequence[str | None], repeats: bool, bound: dict[str, str]) -> bool:
    if len(types) > len(patterns) and not repeats:
        return False
    for index in range(max(len(types), len(patterns))):
        pattern = patterns[min(index, len(patterns) - 1)]
        type_ = types[index] if index < len(types) else None
        if type_ is None:
            if not pattern.optional:
                return False
        elif (pattern.types is not None and type_ not in pattern.types) or (
            pattern.variable and bound.setdefault(pattern.variable, type_) != type_
        ):
            return False
    return True
