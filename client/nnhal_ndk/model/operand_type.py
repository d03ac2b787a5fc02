"""Operand types as the program gives them."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from nnhal.rules.operand import OPERAND_RULES, RANGE_RULES
from nnhal.rules.rule import Rules
from nnhal.types import Operand, OperandLifeTime, OperandType, byte_size, is_extension
from nnhal_ndk.extensions import describe_operand_type
from nnhal_ndk.results import bad_data

MAX_DIMENSION = 2**31 - 1
MAX_VALUE_BYTES = 2**32 - 1

Dimensions = tuple[int, ...]

T = TypeVar("T")


def unpack_uint32s(data: bytes | None) -> Dimensions:
    """Return an array of uint32_t as numbers. None, for NULL, is an empty one."""
    return struct.unpack(f"{len(data) // 4}I", data) if data else ()


def given_type(
    type_: int | None, dimensions: bytes | None, scale: float | None, zero_point: int | None
) -> Operand | None:
    """Return an `ANeuralNetworksOperandType` with these members, or None for NULL. Dimensions may be 0, for unknown."""
    if type_ is None or scale is None or zero_point is None:
        return None
    return Operand(type_, unpack_uint32s(dimensions), scale, zero_point)


def check_type(given: Operand, name: str) -> None:
    """Check a type by the rules of operands. `name` is the operand's in messages.

    Raises:
        NdkError: BAD_DATA: it breaks a rule, or a number is too large.
    """
    type_, dimensions = given.type, given.dimensions
    if type_ == OperandType.SUBGRAPH:  # its model is given later
        given = replace(given, lifetime=OperandLifeTime.SUBGRAPH)
    if any(dimension > MAX_DIMENSION for dimension in dimensions):
        raise bad_data(f"{name} has a dimension above {MAX_DIMENSION}")
    check_rules(RANGE_RULES, given, name)
    if type_ == OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL:  # its parameters are given later
        if given.scale != 0 or given.zero_point != 0:
            raise bad_data(f"{name} has a scale or zero point, but is quantized per channel")
    else:
        check_rules(OPERAND_RULES, given, name)
    if is_extension(type_) and dimensions and not describe_operand_type(type_).is_tensor:
        raise bad_data(f"{name} has dimensions, but is a scalar")
    if known_size(type_, tuple(filter(None, dimensions))) > MAX_VALUE_BYTES:  # unknown dimensions will be 1 or more
        raise bad_data(f"{name} is larger than {MAX_VALUE_BYTES} bytes")


def check_rules(rules: Rules[T], subject: T, name: str) -> None:
    """Check rules of the HAL on what the program has given. `name` is the subject's in messages.

    Raises:
        NdkError: BAD_DATA: it breaks a rule.
    """
    if (broken := rules.first_broken(subject)) is not None:
        rule, problem = broken
        raise bad_data(f"{rule}: {name} {problem}")


def known_size(type_: int, dimensions: Sequence[int]) -> int:
    """Return the bytes of a value, or 0 if its shape is not fully known.

    Raises:
        NdkError: BAD_DATA: no device has this type of an extension.
    """
    if is_extension(type_):
        info = describe_operand_type(type_)
        return info.byte_size * (prod(dimensions) if info.is_tensor else 1) if dimensions or not info.is_tensor else 0
    return byte_size(type_, dimensions)


def is_specialization(given: Dimensions, dimensions: Dimensions) -> bool:
    """Return whether given dimensions repeat the known ones, and may add unknown ones."""
    if given == dimensions:
        return True
    return len(given) == len(dimensions) and all(b in (0, a) for a, b in zip(given, dimensions, strict=True))


def merge_dimensions(operand: Dimensions, given: Dimensions, name: str) -> Dimensions:
    """Return dimensions that satisfy both an operand and the type that is given for its value.

    Raises:
        NdkError: BAD_DATA: they contradict each other.
    """
    if not operand or not given:
        return operand or given
    if len(operand) != len(given) or any(a and b and a != b for a, b in zip(operand, given, strict=True)):
        raise bad_data(f"{name} has dimensions {list(operand)}, but {list(given)} are given")
    return tuple(a or b for a, b in zip(operand, given, strict=True))
