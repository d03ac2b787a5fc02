"""Optimization of a subgraph by a native plug-in: `NnhalOptimization`.

Errors in callbacks cannot pass through C. The first is stored, and raised after the plug-in has returned.
"""

import ctypes as c
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnhal.errors import general_failure
from nnhal.types import ErrorStatus
from nnhal_driver.backends.api import CompiledSubgraph, OptimizedSubgraph, SubgraphView, Substitution
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.native.library import NO_REASON, FunctionTable
from nnhal_driver.backends.native.marshalling import SubgraphStruct

_INVALID = ErrorStatus.INVALID_ARGUMENT


@dataclass(frozen=True, slots=True, eq=False)
class SubgraphPart:
    """Operations for the plug-in to compile. `adopt` turns the plug-in's handle into a compiled subgraph."""

    operations: tuple[int, ...]
    struct: SubgraphStruct
    adopt: Callable[[int | None], CompiledSubgraph]


class OptimizationCall:
    """One call of a plug-in's `optimize`, with its callbacks. `part` returns the operations of some indexes."""

    def __init__(self, view: SubgraphView, part: Callable[[tuple[int, ...]], SubgraphPart]) -> None:
        self._indexes = [operation.index for operation in view.operations]
        self._part = part
        self._parts: dict[int, SubgraphPart] = {}
        self._substitutions: list[Substitution] = []
        self._failed: dict[int, str] = {}
        self._error: BaseException | None = None

    def run(self, table: FunctionTable, whole: SubgraphStruct) -> OptimizedSubgraph:
        """Call the plug-in.

        Raises:
            HalError: the plug-in failed, or called back with invalid arguments.
        """
        struct = abi.Optimization(
            c.sizeof(abi.Optimization),
            None,
            abi.PartFunction(lambda _, *arguments: self._guard(None, self._make_part, *arguments)),
            abi.SubstituteFunction(lambda _, *arguments: self._guard(_INVALID, self._substitute, *arguments)),
            abi.FailFunction(lambda _, *arguments: self._guard(_INVALID, self._fail, *arguments)),
        )
        try:
            table.run("optimize", c.byref(whole.struct), c.byref(struct))
        finally:
            self._raise()
        return OptimizedSubgraph(tuple(self._substitutions), self._failed)

    def _raise(self) -> None:
        """Raise the stored error and drop it, because its traceback refers to substitutions."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def _guard(self, failure: int | None, function: Callable[..., int], *arguments: object) -> int | None:
        try:
            return function(*arguments)
        except BaseException as error:
            self._error = self._error or error
            return failure

    def _make_part(self, count: int, operations: Sequence[int]) -> int:
        if count > len(self._indexes):
            raise general_failure(f"the backend asked for a part of {count} operations of {len(self._indexes)}")
        part = self._part(tuple(self._index(operations[i]) for i in range(count)))
        address = c.addressof(part.struct.struct)
        self._parts[address] = part
        return address

    def _substitute(self, address: int | None, compiled: int | None) -> int:
        part = self._parts.pop(address or 0, None)
        if part is None:
            raise general_failure("the backend substitutes an unknown part, or a part twice")
        if not compiled:
            raise general_failure("the backend substitutes a part without a compiled subgraph")
        self._substitutions.append(Substitution(part.operations, part.adopt(compiled)))
        return ErrorStatus.NONE

    def _fail(self, operation: int, reason: bytes | None) -> int:
        text = (reason or b"").decode(errors="replace").strip()
        self._failed[self._index(operation)] = text or NO_REASON
        return ErrorStatus.NONE

    def _index(self, number: int) -> int:
        if number >= len(self._indexes):
            raise general_failure(f"the backend named operation {number} of {len(self._indexes)}")
        return self._indexes[number]
