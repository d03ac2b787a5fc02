"""Inputs that are sent to each replica only once."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from nnhal.types import AnyArray

B = TypeVar("B")


class KeptInputs(Generic[B]):
    """Arrays that each of several bursts keeps a copy of. An array is known by its identity. Thread safe."""

    def __init__(self) -> None:
        self._copies: dict[int, Mapping[B, AnyArray]] = {}

    def add(self, copies: Mapping[B, AnyArray]) -> AnyArray:
        """Take the copies of an array, and return the one that stands for all of them."""
        array = next(iter(copies.values()))
        self._copies[id(array)] = copies
        return array

    def remove(self, array: AnyArray) -> Mapping[B, AnyArray]:
        """Remove an array, and return its copies: none if it is not kept."""
        return self._copies.pop(id(array), {})

    def of(self, burst: B, inputs: Any) -> Any:
        """Return inputs for one of the bursts: its own copies of arrays that are kept."""
        if not self._copies:
            return inputs
        return _each(inputs, lambda array: self._copies.get(id(array), {}).get(burst, array))

    def frozen(self, inputs: Any) -> Any:
        """Return inputs that do not change: copies of arrays that are not kept."""
        return _each(inputs, lambda array: array if array is None or id(array) in self._copies else _frozen(array))


def _each(inputs: Any, change: Any) -> Any:
    """Return inputs whose arrays a function has changed."""
    if isinstance(inputs, dict):
        return {name: change(value) for name, value in inputs.items()}
    return [change(value) for value in inputs]


def _frozen(value: Any) -> AnyArray:
    copy = np.array(value)
    copy.flags.writeable = False  # so that it is not copied again
    return copy
