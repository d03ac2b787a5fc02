"""Checks that the signatures of several families share: equal quantization and related ranks."""

from nnhal.operations.signature import Arguments, Check
from nnhal.types import OperandType

_QUANT8 = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


def same_quantization(input_: str = "input", output: str = "output") -> Check:
    """Return a check that an 8-bit output has the scale and zero point of an input, or of each repeated input."""

    def check(arguments: Arguments) -> str | None:
        result = arguments[output]
        if result.type not in _QUANT8:
            return None
        for name in _expand_repeated(arguments, input_):
            operand = arguments[name]
            if (operand.scale, operand.zero_point) != (result.scale, result.zero_point):
                return (
                    f"{output} has scale {result.scale:g}, zero point {result.zero_point}; "
                    f"{name} has {operand.scale:g}, {operand.zero_point}"
                )
        return None

    return check


def rank_difference(extra: int, input_: str = "input", output: str = "output") -> Check:
    """Return a check that the rank of an output is `extra` more than that of an input, or of each repeated input.

    Unknown ranks pass.
    """

    def check(arguments: Arguments) -> str | None:
        ranks = {name: len(arguments[name].dimensions) for name in _expand_repeated(arguments, input_)}
        ranks = {name: rank for name, rank in ranks.items() if rank}
        if len(set(ranks.values())) > 1:
            return f"{', '.join(f'{name} has rank {rank}' for name, rank in ranks.items())}; they must be equal"
        actual = len(arguments[output].dimensions)
        for name, rank in ranks.items():
            if actual and actual != rank + extra:
                return f"{output} has rank {actual}, {name} {rank}; it must be {rank + extra}"
        return None

    return check


def _expand_repeated(arguments: Arguments, name: str) -> list[str]:
    """Return the name of an argument, or all names of a repeated one."""
    return [candidate for candidate in arguments.inputs if candidate.rstrip("0123456789") == name]
