"""Rules for what an operand describes: numbers in range, type, shape and quantization (V-WIRE, V-OPERAND-01 to 13).

The dimensions of extension types are not checked: an extension defines them (V-OPERAND-06).
"""

from collections.abc import Sequence

from nnhal.rules.ranges import negative, outside_location_range
from nnhal.rules.rule import Rules
from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    ExtensionParams,
    Operand,
    OperandLifeTime,
    OperandType,
    SymmPerChannelQuantParams,
    UnsetUnion,
    is_extension,
    is_tensor,
)

MAXIMUM_SIZE = 2**64 - 1
"""Most bytes that a value can have."""

SCALED_TYPES = frozenset(
    {
        OperandType.TENSOR_QUANT8_ASYMM,
        OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
        OperandType.TENSOR_QUANT8_SYMM,
        OperandType.TENSOR_QUANT16_SYMM,
        OperandType.TENSOR_QUANT16_ASYMM,
    }
)
"""Types whose scale must be > 0. TENSOR_INT32 may have a scale; it must be 0 for all other types."""
_ZERO_POINTS: dict[int, tuple[int, int]] = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    OperandType.TENSOR_QUANT16_ASYMM: (0, 65535),
}
"""Lowest and highest zero point; it must be 0 for all other types."""
CONSTANT_LIFETIMES = (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_POOL)

_LAST_TYPE = max(OperandType)
_PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
_OEM_TYPES = (10000, 10001)
_LIFETIMES = frozenset(map(int, OperandLifeTime))

RANGE_RULES = Rules[Operand]()
OPERAND_RULES = Rules[Operand]()
"""They hold for an operand that satisfies `RANGE_RULES`."""


def bounded_byte_size(type_: int, dimensions: Sequence[int]) -> int | None:
    """Return the bytes of a value of a base type, or None above MAXIMUM_SIZE. All dimensions must be known."""
    return bounded_size(DTYPES[type_].itemsize, dimensions)


def bounded_size(element: int, dimensions: Sequence[int]) -> int | None:
    """Return the bytes of elements of `element` bytes each, or None above MAXIMUM_SIZE.

    The product stops at the bound, so that its numbers stay small with any count of huge dimensions.
    """
    size = element
    for dimension in dimensions:
        size *= dimension
        if size > MAXIMUM_SIZE:
            return None
    return size


# ---- Numbers in range -----------------------------------------------------------------------------------


@RANGE_RULES.forbid("V-WIRE-01")
def _negative_type(operand: Operand) -> str | None:
    return "has a negative type" if operand.type < 0 else None


@RANGE_RULES.forbid("V-WIRE-02")
def _oem_type(operand: Operand) -> str | None:
    return "has an OEM type, which version 4 does not support" if operand.type in _OEM_TYPES else None


@RANGE_RULES.forbid("V-WIRE-03")
def _negative_dimension(operand: Operand) -> str | None:
    return negative("dimension", operand.dimensions)


@RANGE_RULES.forbid("V-WIRE-04")
def _location_out_of_range(operand: Operand) -> str | None:
    return outside_location_range(operand.location)


@RANGE_RULES.forbid("V-WIRE-05")
def _negative_channel_dimension(operand: Operand) -> str | None:
    params = operand.extra_params
    if not isinstance(params, SymmPerChannelQuantParams):
        return None
    return negative("channel dimension", [params.channel_dim])


@RANGE_RULES.forbid("V-WIRE-06")
def _unknown_lifetime(operand: Operand) -> str | None:
    return None if operand.lifetime in _LIFETIMES else f"has lifetime {operand.lifetime}, must be 0 to 6"


@RANGE_RULES.forbid("V-WIRE-07")
def _unset_extra_params(operand: Operand) -> str | None:
    return "has extra parameters of an unknown kind" if isinstance(operand.extra_params, UnsetUnion) else None


# ---- Type and shape -------------------------------------------------------------------------------------


@OPERAND_RULES.forbid("V-OPERAND-01")
def _unassigned_type(operand: Operand) -> str | None:
    if operand.type <= _LAST_TYPE or is_extension(operand.type):
        return None
    return f"has a type that is not assigned, must be 0 to {_LAST_TYPE} or above 65535"


@OPERAND_RULES.forbid("V-OPERAND-02")
def _subgraph_by_type_or_lifetime_alone(operand: Operand) -> str | None:
    if (operand.type == OperandType.SUBGRAPH) == (operand.lifetime == OperandLifeTime.SUBGRAPH):
        return None
    return f"has lifetime {OperandLifeTime(operand.lifetime).name}, must be SUBGRAPH exactly when its type is"


@OPERAND_RULES.forbid("V-OPERAND-03")
def _scalar_with_dimensions(operand: Operand) -> str | None:
    if operand.dimensions and (operand.type in SCALAR_TYPES or operand.type == OperandType.SUBGRAPH):
        return f"has rank {len(operand.dimensions)}, must have no dimensions"
    return None


@OPERAND_RULES.forbid("V-OPERAND-04")
def _constant_without_size(operand: Operand) -> str | None:
    if operand.lifetime not in CONSTANT_LIFETIMES or not is_tensor(operand.type):
        return None
    if not operand.dimensions:
        return "is a constant of unknown rank"
    if 0 in operand.dimensions:
        return f"is a constant with dimension {operand.dimensions.index(0)} of 0, must be > 0"
    if bounded_byte_size(operand.type, operand.dimensions) is None:
        return f"is a constant of more than {MAXIMUM_SIZE} bytes"
    return None


# ---- Quantization: the comparisons also reject NaN ------------------------------------------------------


@OPERAND_RULES.forbid("V-OPERAND-07")
def _scale_of_an_unscaled_type(operand: Operand) -> str | None:
    if operand.scale == 0 or operand.type == OperandType.TENSOR_INT32 or operand.type in SCALED_TYPES:
        return None
    return f"has scale {operand.scale}, must be 0"


@OPERAND_RULES.forbid("V-OPERAND-08")
def _negative_scale(operand: Operand) -> str | None:
    if operand.type != OperandType.TENSOR_INT32 or operand.scale >= 0:
        return None
    return f"has scale {operand.scale}, must be >= 0"


@OPERAND_RULES.forbid("V-OPERAND-09")
def _quantized_without_scale(operand: Operand) -> str | None:
    if operand.type not in SCALED_TYPES or operand.scale > 0:
        return None
    return f"has scale {operand.scale}, must be > 0"


@OPERAND_RULES.forbid("V-OPERAND-10")
def _zero_point_out_of_range(operand: Operand) -> str | None:
    low, high = _ZERO_POINTS.get(operand.type, (0, 0))
    if low <= operand.zero_point <= high:
        return None
    return f"has zero point {operand.zero_point}, must be {f'{low} to {high}' if high else '0'}"


@OPERAND_RULES.forbid("V-OPERAND-11")
def _unexpected_extra_params(operand: Operand) -> str | None:
    if operand.extra_params is None or operand.type == _PER_CHANNEL or is_extension(operand.type):
        return None
    return "has extra parameters, must have none"


@OPERAND_RULES.forbid("V-OPERAND-12")
def _wrong_channel_scales(operand: Operand) -> str | None:
    if operand.type != _PER_CHANNEL:
        return None
    params, dimensions = operand.extra_params, operand.dimensions
    if not isinstance(params, SymmPerChannelQuantParams):
        return "has no scales per channel"
    if params.channel_dim >= len(dimensions):
        return f"has channel dimension {params.channel_dim} and rank {len(dimensions)}, must be below the rank"
    channels = dimensions[params.channel_dim]
    if channels == 0:
        return f"has channel dimension {params.channel_dim} of unknown length, must be known"
    if len(params.scales) != channels:
        return f"has {len(params.scales)} scales for {channels} channels"
    invalid = next((scale for scale in params.scales if not scale > 0), None)
    return None if invalid is None else f"has scale {invalid} for a channel, must be > 0"


@OPERAND_RULES.forbid("V-OPERAND-13")
def _extension_with_params_of_a_base_type(operand: Operand) -> str | None:
    if not is_extension(operand.type) or operand.extra_params is None:
        return None
    return None if isinstance(operand.extra_params, ExtensionParams) else "has scales per channel, must have none"
