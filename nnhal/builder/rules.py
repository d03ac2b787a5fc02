"""What an operand must be: type, shape and quantisation, as tables (V-WIRE-03, V-OPERAND-01 to 13)."""

from collections.abc import Callable
from math import prod

from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    ExtensionParams,
    Operand,
    OperandType,
    SymmPerChannelQuantParams,
    is_extension,
    is_tensor,
    type_name,
)

_PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL

SCALED = frozenset(
    {
        OperandType.TENSOR_QUANT8_ASYMM,
        OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
        OperandType.TENSOR_QUANT8_SYMM,
        OperandType.TENSOR_QUANT16_SYMM,
        OperandType.TENSOR_QUANT16_ASYMM,
    }
)
"""Types whose scale must be > 0. TENSOR_INT32 may have one; all others have none."""

_ZERO_POINTS: dict[int, tuple[int, int]] = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    OperandType.TENSOR_QUANT16_ASYMM: (0, 65535),
}
"""Least and greatest zero point; 0 for all other types."""

_LARGEST = 2**64 - 1

_Rule = Callable[[Operand, bool], str | None]
_RULES: list[tuple[str, _Rule]] = []


def complaint(operand: Operand, *, constant: bool = False) -> tuple[str, str] | None:
    """What is wrong with an operand.

    Returns:
        the rule that it breaks, and what it has and should have; or None.
    """
    for rule, judge in _RULES:
        if (text := judge(operand, constant)) is not None:
            return rule, text
    return None


def _forbid(rule: str) -> Callable[[_Rule], _Rule]:
    def register(judge: _Rule) -> _Rule:
        _RULES.append((rule, judge))
        return judge

    return register


# ---- Type and shape -------------------------------------------------------------------------------------


@_forbid("V-WIRE-03")
def _negative_dimension(operand: Operand, constant: bool) -> str | None:
    lowest = min(operand.dimensions, default=0)
    return f"has dimension {lowest}; a dimension that is not known is 0" if lowest < 0 else None


@_forbid("V-OPERAND-01")
def _no_type(operand: Operand, constant: bool) -> str | None:
    if 0 <= operand.type <= max(OperandType) or is_extension(operand.type):
        return None
    return f"has type {operand.type}; types are 0 to {int(max(OperandType))}, or those of an extension"


@_forbid("V-OPERAND-02")
def _subgraph(operand: Operand, constant: bool) -> str | None:
    return "is a SUBGRAPH; give the subgraph itself to IF or WHILE" if operand.type == OperandType.SUBGRAPH else None


@_forbid("V-OPERAND-03")
def _scalar_with_dimensions(operand: Operand, constant: bool) -> str | None:
    if operand.type not in SCALAR_TYPES or not operand.dimensions:
        return None
    return f"has dimensions {list(operand.dimensions)}; a {type_name(operand.type)} has none"


@_forbid("V-OPERAND-04")
def _constant_without_size(operand: Operand, constant: bool) -> str | None:
    if not constant or not is_tensor(operand.type):
        return None
    if not operand.dimensions:
        return f"has no dimensions; a constant {type_name(operand.type)} has at least one"
    if 0 in operand.dimensions:
        return f"has dimensions {list(operand.dimensions)}; those of a constant are above 0"
    if DTYPES[operand.type].itemsize * prod(operand.dimensions) > _LARGEST:
        return f"has more than {_LARGEST} bytes"
    return None


# ---- Quantisation: a NaN fails each of these --------------------------------------------------------------


@_forbid("V-OPERAND-07")
def _scale_of_a_type_without_one(operand: Operand, constant: bool) -> str | None:
    if operand.scale == 0 or operand.type == OperandType.TENSOR_INT32 or operand.type in SCALED:
        return None
    where = "; its scales are in channel_quant" if operand.type == _PER_CHANNEL else ""
    return f"has scale {operand.scale:g}; {type_name(operand.type)} has none: it must be 0{where}"


@_forbid("V-OPERAND-08")
def _negative_scale(operand: Operand, constant: bool) -> str | None:
    if operand.type != OperandType.TENSOR_INT32 or operand.scale >= 0:
        return None
    return f"has scale {operand.scale:g}; it must be >= 0"


@_forbid("V-OPERAND-09")
def _quantized_without_scale(operand: Operand, constant: bool) -> str | None:
    if operand.type not in SCALED or operand.scale > 0:
        return None
    return f"has scale {operand.scale:g}; that of {type_name(operand.type)} must be > 0"


@_forbid("V-OPERAND-10")
def _zero_point_out_of_range(operand: Operand, constant: bool) -> str | None:
    low, high = _ZERO_POINTS.get(operand.type, (0, 0))
    if low <= operand.zero_point <= high:
        return None
    right = f"{low} to {high}" if high else "0"
    return f"has zero point {operand.zero_point}; that of {type_name(operand.type)} must be {right}"


@_forbid("V-OPERAND-11")
def _params_of_a_type_without_them(operand: Operand, constant: bool) -> str | None:
    if operand.extra_params is None or operand.type == _PER_CHANNEL or is_extension(operand.type):
        return None
    return f"has extra parameters; only {_PER_CHANNEL.name} and the types of extensions do"


@_forbid("V-OPERAND-12")
def _channels_without_their_scales(operand: Operand, constant: bool) -> str | None:
    if operand.type != _PER_CHANNEL:
        return None
    params, dimensions = operand.extra_params, operand.dimensions
    if not isinstance(params, SymmPerChannelQuantParams):
        return f"has no channel_quant; {_PER_CHANNEL.name} needs its scales and the dimension that they are for"
    if not 0 <= params.channel_dim < len(dimensions):
        return f"has channel dimension {params.channel_dim}, but rank {len(dimensions)}"
    channels = dimensions[params.channel_dim]
    if channels == 0 or len(params.scales) != channels:
        return f"has {len(params.scales)} scales for dimension {params.channel_dim}, which has length {channels}"
    wrong = next((scale for scale in params.scales if not scale > 0), None)
    return None if wrong is None else f"has scale {wrong:g} for a channel; it must be > 0"


@_forbid("V-OPERAND-13")
def _extension_with_params_of_a_base_type(operand: Operand, constant: bool) -> str | None:
    if not is_extension(operand.type) or operand.extra_params is None:
        return None
    if isinstance(operand.extra_params, ExtensionParams):
        return None
    return "has scales per channel; the types of extensions have only parameters of their own"
