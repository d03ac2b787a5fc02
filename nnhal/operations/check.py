"""Checks that several families hang on their signatures: arguments that are quantised alike, ranks that go together."""

from nnhal.operations.signature import Arguments, Check
from nnhal.types import OperandType

_QUANT8 = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


def same_quantization(input_: str = "input", output: str = "output") -> Check:
    """8-bit types: an output has scale and zero point of an input, or of each where `input_` is repeated."""

    def check(arguments: Arguments) -> str | None:
        result = arguments[output]
        if result.type not in _QUANT8:
            return None
        for name in _each(arguments, input_):
            operand = arguments[name]
            if (operand.scale, operand.zero_point) != (result.scale, result.zero_point):
                return (
                    f"{output} has scale {result.scale:g}, zero point {result.zero_point}; "
                    f"{name} has {operand.scale:g}, {operand.zero_point}"
                )
        return None

    return check


def rank_difference(extra: int, input_: str = "input", output: str = "output") -> Check:
    """The rank of an output is that of an input, or of each where `input_` is repeated, plus `extra`; where known."""

    def check(arguments: Arguments) -> str | None:
        ranks = {name: len(arguments[name].dimensions) for name in _each(arguments, input_)}
        ranks = {name: rank for name, rank in ranks.items() if rank}
        if len(set(ranks.values())) > 1:
            return f"{', '.join(f'{name} has rank {rank}' for name, rank in ranks.items())}; they must be equal"
        found = len(arguments[output].dimensions)
        for name, rank in ranks.items():
            if found and found != rank + extra:
                return f"{output} has rank {found}, {name} {rank}; it must be {rank + extra}"
        return None

    return check


def _each(arguments: Arguments, name: str) -> list[str]:
    """The argument, or all of a repeated one."""
    return [each for each in arguments.inputs if each.rstrip("0123456789") == name]
