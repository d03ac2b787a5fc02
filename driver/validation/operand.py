"""Operands of every subgraph, used or not: type, shape, quantisation, location (V-OPERAND).

Types of extensions may be scalars or tensors of any size, so their dimensions and lengths are not judged
(V-OPERAND-06). No offset need be aligned (V-OPERAND-21).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from driver.validation.place import operand_place
from driver.validation.rule import Rules
from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    DataLocation,
    ExtensionParams,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    SymmPerChannelQuantParams,
    is_extension,
    is_tensor,
)

MAXIMUM_SIZE = 2**64 - 1

_LAST_TYPE = max(OperandType)
_POSITIVE_SCALE = frozenset(
    {
        OperandType.TENSOR_QUANT8_ASYMM,
        OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
        OperandType.TENSOR_QUANT8_SYMM,
        OperandType.TENSOR_QUANT16_SYMM,
        OperandType.TENSOR_QUANT16_ASYMM,
    }
)
_ANY_SCALE = OperandType.TENSOR_INT32
_ZERO_POINTS: dict[int, tuple[int, int]] = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    OperandType.TENSOR_QUANT16_ASYMM: (0, 65535),
}
_PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
_CONSTANT = (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_POOL)
_WITHOUT_LOCATION = (
    OperandLifeTime.TEMPORARY_VARIABLE,
    OperandLifeTime.SUBGRAPH_INPUT,
    OperandLifeTime.SUBGRAPH_OUTPUT,
    OperandLifeTime.NO_VALUE,
)


@dataclass(frozen=True, slots=True)
class OperandIn:
    """An operand and the model that holds its value."""

    model: Model
    operand: Operand


OPERAND = Rules[Operand]()
LOCATION = Rules[OperandIn]()


def check_operand(model: Model, number: int, index: int, operand: Operand) -> None:
    """Judges operand `index` of subgraph `number`.

    Raises:
        HalError: INVALID_ARGUMENT, V-OPERAND-01 to 20.
    """
    place = partial(operand_place, number, index, operand)
    OPERAND.check(operand, place)
    LOCATION.check(OperandIn(model, operand), place)


def bounded_byte_size(type_: int, dimensions: Sequence[int]) -> int | None:
    """Bytes of an operand of a base type; None beyond the address size. The dimensions are known, or a scalar's."""
    return bounded_size(DTYPES[type_].itemsize, dimensions)


def bounded_size(element: int, dimensions: Sequence[int]) -> int | None:
    """Bytes of elements of some bytes each; None beyond the address size.

    It stops at the bound: dimensions that somebody made up cost no more than they are many.
    """
    size = element
    for dimension in dimensions:
        size *= dimension
        if size > MAXIMUM_SIZE:
            return None
    return size


# ---- Type and shape -------------------------------------------------------------------------------------


@OPERAND.forbid("V-OPERAND-01")
def _unassigned_type(operand: Operand) -> str | None:
    if operand.type <= _LAST_TYPE or is_extension(operand.type):
        return None
    return f"has a type that is not assigned, must be 0 to {_LAST_TYPE} or above 65535"


@OPERAND.forbid("V-OPERAND-02")
def _subgraph_by_type_or_lifetime_alone(operand: Operand) -> str | None:
    if (operand.type == OperandType.SUBGRAPH) == (operand.lifetime == OperandLifeTime.SUBGRAPH):
        return None
    return f"has lifetime {OperandLifeTime(operand.lifetime).name}, must be SUBGRAPH exactly when its type is"


@OPERAND.forbid("V-OPERAND-03")
def _scalar_with_dimensions(operand: Operand) -> str | None:
    if operand.dimensions and (operand.type in SCALAR_TYPES or operand.type == OperandType.SUBGRAPH):
        return f"has rank {len(operand.dimensions)}, must have no dimensions"
    return None


@OPERAND.forbid("V-OPERAND-04")
def _constant_without_size(operand: Operand) -> str | None:
    if operand.lifetime not in _CONSTANT or not is_tensor(operand.type):
        return None
    if not operand.dimensions:
        return "is a constant of unknown rank"
    if 0 in operand.dimensions:
        return f"is a constant with dimension {operand.dimensions.index(0)} unknown"
    if bounded_byte_size(operand.type, operand.dimensions) is None:
        return f"is a constant of more than {MAXIMUM_SIZE} bytes"
    return None


# ---- Quantisation: a NaN fails each of these --------------------------------------------------------------


@OPERAND.forbid("V-OPERAND-07")
def _scale_of_a_type_without_one(operand: Operand) -> str | None:
    if operand.scale == 0 or operand.type == _ANY_SCALE or operand.type in _POSITIVE_SCALE:
        return None
    return f"has scale {operand.scale}, must be 0"


@OPERAND.forbid("V-OPERAND-08")
def _negative_scale(operand: Operand) -> str | None:
    return None if operand.type != _ANY_SCALE or operand.scale >= 0 else f"has scale {operand.scale}, must be >= 0"


@OPERAND.forbid("V-OPERAND-09")
def _quantised_without_scale(operand: Operand) -> str | None:
    if operand.type not in _POSITIVE_SCALE or operand.scale > 0:
        return None
    return f"has scale {operand.scale}, must be > 0"


@OPERAND.forbid("V-OPERAND-10")
def _zero_point_out_of_range(operand: Operand) -> str | None:
    low, high = _ZERO_POINTS.get(operand.type, (0, 0))
    if low <= operand.zero_point <= high:
        return None
    return f"has zero point {operand.zero_point}, must be {f'{low} to {high}' if high else '0'}"


@OPERAND.forbid("V-OPERAND-11")
def _extra_params_of_a_type_without_them(operand: Operand) -> str | None:
    if operand.extra_params is None or operand.type == _PER_CHANNEL or is_extension(operand.type):
        return None
    return "has extra parameters, must have none"


@OPERAND.forbid("V-OPERAND-12")
def _channels_without_their_scales(operand: Operand) -> str | None:
    if operand.type != _PER_CHANNEL:
        return None
    params, dimensions = operand.extra_params, operand.dimensions
    if not isinstance(params, SymmPerChannelQuantParams):
        return "has no scales per channel"
    if params.channel_dim >= len(dimensions):
        return f"has channel dimension {params.channel_dim} and rank {len(dimensions)}, must be below the rank"
    channels = dimensions[params.channel_dim]
    if channels == 0:
        return f"has dimension {params.channel_dim} unknown, must be known where the channels are"
    if len(params.scales) != channels:
        return f"has {len(params.scales)} scales for {channels} channels"
    wrong = next((scale for scale in params.scales if not scale > 0), None)
    return None if wrong is None else f"has scale {wrong} for a channel, must be > 0"


@OPERAND.forbid("V-OPERAND-13")
def _extension_with_params_of_a_base_type(operand: Operand) -> str | None:
    if not is_extension(operand.type) or operand.extra_params is None:
        return None
    return None if isinstance(operand.extra_params, ExtensionParams) else "has scales per channel, must have none"


# ---- Location by lifetime -------------------------------------------------------------------------------


@OPERAND.forbid("V-OPERAND-15")
def _padded(operand: Operand) -> str | None:
    return f"has padding {operand.location.padding}, must be 0" if operand.location.padding else None


@OPERAND.forbid("V-OPERAND-16")
def _location_of_what_is_not_constant(operand: Operand) -> str | None:
    if operand.lifetime not in _WITHOUT_LOCATION:
        return None
    return _wrong_field(operand.location, "pool_index", "offset", "length")


@LOCATION.forbid("V-OPERAND-17")
def _copy_outside_the_operand_values(subject: OperandIn) -> str | None:
    if subject.operand.lifetime != OperandLifeTime.CONSTANT_COPY:
        return None
    location = subject.operand.location
    size = memoryview(subject.model.operand_values).nbytes
    return _wrong_field(location, "pool_index") or _beyond(location, size, "the operand values")


@LOCATION.forbid("V-OPERAND-18")
def _constant_outside_its_pool(subject: OperandIn) -> str | None:
    if subject.operand.lifetime != OperandLifeTime.CONSTANT_POOL:
        return None
    location, pools = subject.operand.location, subject.model.pools
    if location.pool_index >= len(pools):
        return f"has pool index {location.pool_index} of {len(pools)} pools"
    pool = pools[location.pool_index]
    assert isinstance(pool, Memory), "unset unions are refused before"
    return _beyond(location, pool.size, f"pool {location.pool_index}")


@LOCATION.forbid("V-OPERAND-19")
def _reference_to_no_subgraph(subject: OperandIn) -> str | None:
    if subject.operand.lifetime != OperandLifeTime.SUBGRAPH:
        return None
    location, count = subject.operand.location, len(subject.model.referenced)
    if location.offset >= count:
        return f"refers to subgraph {location.offset} of {count} referenced subgraphs"
    return _wrong_field(location, "pool_index", "length")


@OPERAND.forbid("V-OPERAND-20")
def _constant_of_another_length(operand: Operand) -> str | None:
    if operand.lifetime not in _CONSTANT or is_extension(operand.type):
        return None
    size = bounded_byte_size(operand.type, operand.dimensions)
    return None if operand.location.length == size else f"has length {operand.location.length}, must be {size}"


def _wrong_field(location: DataLocation, *names: str) -> str | None:
    """Complains about the first of these fields that is not 0."""
    for name in names:
        if value := getattr(location, name):
            return f"has {name.replace('_', ' ')} {value}, must be 0"
    return None


def _beyond(location: DataLocation, size: int, where: str) -> str | None:
    end = location.offset + location.length
    return f"ends at byte {end} of {where}, which has {size} bytes" if end > size else None
