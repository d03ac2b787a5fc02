"""Programs for seccomp filters: instructions of classic BPF that look at the number and arguments of a system call."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from nnhal_service.sandbox.system_calls import AUDIT_ARCHITECTURES, LAST_NUMBER, number_of

_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _AND, _RETURN = 0x20, 0x15, 0x25, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
"""Results of a program. The error is in the lower bits of the second one."""
_INSTRUCTION = struct.Struct("=HBBI")


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on the lower 32 bits of one argument of a system call, which are all that the kernel reads of it.

    Attributes:
        values: it must be one of these, after the mask.
        negated: whether it must be none of these instead.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for one system call: it fails with an error.

    Attributes:
        allowed_if: alternatives, each with conditions that must all hold: the call is allowed then.
        is_unknown: whether it fails as one that the kernel does not have.
    """

    name: str
    allowed_if: tuple[tuple[Condition, ...], ...] = ()
    is_unknown: bool = False


def assemble(machine: str, rules: Sequence[Rule], error: int, unknown_error: int) -> bytes:
    """Return the program that allows all system calls, except as the rules say.

    Args:
        machine: one of `AUDIT_ARCHITECTURES`.
        rules: the rules. Those with conditions should come first, because the kernel remembers the results of others.
        error: errno of calls that fail.
        unknown_error: errno of calls of other architectures, and of those with larger numbers than are known. On x86_64
            these include the calls of the x32 ABI.
    """
    failure = _return(_ERROR | unknown_error)
    program = [_load(_ARCHITECTURE), _jump(_JUMP_EQUAL, AUDIT_ARCHITECTURES[machine], 1, 0), failure]
    program += [_load(_NUMBER), _jump(_JUMP_GREATER, LAST_NUMBER, 0, 1), failure]
    for rule in rules:
        number = number_of(rule.name, machine)
        if number is not None:
            code = unknown_error if rule.is_unknown else error
            body = [*chain.from_iterable(map(_alternative, rule.allowed_if)), _return(_ERROR | code)]
            program += [_jump(_JUMP_EQUAL, number, 0, len(body)), *body]
    return b"".join([*program, _return(_ALLOW)])


def _alternative(conditions: Sequence[Condition]) -> list[bytes]:
    """Return the instructions that allow the call if all conditions hold, and continue behind themselves if not."""
    instructions = [_return(_ALLOW)]
    for condition in reversed(conditions):
        instructions = _check(condition, len(instructions)) + instructions
    return instructions


def _check(condition: Condition, size: int) -> list[bytes]:
    """Return the instructions that skip the following `size` instructions unless a condition holds."""
    check = [_load(_ARGUMENTS + 8 * condition.argument), _INSTRUCTION.pack(_AND, 0, 0, condition.mask)]
    for left in reversed(range(len(condition.values))):
        value = condition.values[-1 - left]
        if condition.negated:
            check.append(_jump(_JUMP_EQUAL, value, left + size, 0))
        else:
            check.append(_jump(_JUMP_EQUAL, value, left, 0 if left else size))
    return check


def _load(offset: int) -> bytes:
    return _INSTRUCTION.pack(_LOAD, 0, 0, offset)


def _jump(operation: int, value: int, if_true: int, if_false: int) -> bytes:
    return _INSTRUCTION.pack(operation, if_true, if_false, value)


def _return(action: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, action)
