"""What a native plug-in answers when it is asked to optimise a subgraph: `NnhalOptimization`.

Errors that arise in its calls cannot pass through C: the first is kept, and raised when the plug-in has returned.
"""

import ctypes as c
from collections.abc import Callable, Sequence

from driver.backends.api import CompiledSubgraph, OptimizedSubgraph, SubgraphView, Substitution
from driver.backends.native import abi
from driver.backends.native.library import Table
from driver.backends.native.marshalling import SubgraphStruct
from nnhal.errors import general_failure
from nnhal.types import ErrorStatus


class Part:
    """Some operations, as the plug-in sees them. `adopt` makes what it compiled of them a compiled subgraph."""

    def __init__(
        self, operations: tuple[int, ...], struct: SubgraphStruct, adopt: Callable[[int | None], CompiledSubgraph]
    ) -> None:
        self.operations = operations
        self.struct = struct
        self.adopt = adopt


class Answer:
    """Collects an answer.

    Args:
        view: what is optimised.
        part: describes some of its operations, given by their indexes.
    """

    def __init__(self, view: SubgraphView, part: Callable[[tuple[int, ...]], Part]) -> None:
        self._indexes = [operation.index for operation in view.operations]
        self._part = part
        self._parts: dict[int, Part] = {}
        self._substitutions: list[Substitution] = []
        self._failed: dict[int, str] = {}
        self._error: BaseException | None = None

    def ask(self, table: Table, whole: SubgraphStruct) -> OptimizedSubgraph:
        """Asks the plug-in.

        Raises:
            HalError: it failed, or asked for what there is not.
        """
        struct = abi.Optimization(
            c.sizeof(abi.Optimization),
            None,
            abi.PartFunction(lambda _, *asked: self._guarded(None, self._make_part, *asked)),
            abi.SubstituteFunction(lambda _, *told: self._guarded(ErrorStatus.INVALID_ARGUMENT, self._take, *told)),
            abi.FailFunction(lambda _, *told: self._guarded(ErrorStatus.INVALID_ARGUMENT, self._fail, *told)),
        )
        try:
            table.run("optimize", c.byref(whole.struct), c.byref(struct))
        finally:
            self._raise()
        return OptimizedSubgraph(tuple(self._substitutions), self._failed)

    def _raise(self) -> None:
        """Raises what was kept, and keeps no hold on it: what was substituted is to be let go with it."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def _guarded(self, refusal: int | None, function: Callable[..., int], *arguments: object) -> int | None:
        try:
            return function(*arguments)
        except BaseException as error:
            self._error = self._error or error
            return refusal

    def _make_part(self, count: int, operations: Sequence[int]) -> int:
        if count > len(self._indexes):
            raise general_failure(f"the backend asked for a part of {count} operations of {len(self._indexes)}")
        made = self._part(tuple(self._index(operations[i]) for i in range(count)))
        address = c.addressof(made.struct.struct)
        self._parts[address] = made
        return address

    def _take(self, part: int | None, compiled: int | None) -> int:
        known = self._parts.pop(part or 0, None)
        if known is None:
            raise general_failure("the backend substitutes a part that it did not ask for, or one twice")
        self._substitutions.append(Substitution(known.operations, known.adopt(compiled)))
        return ErrorStatus.NONE

    def _fail(self, operation: int, reason: bytes | None) -> int:
        text = (reason or b"").decode(errors="replace").strip()
        self._failed[self._index(operation)] = text or "the backend gave no reason"
        return ErrorStatus.NONE

    def _index(self, place: int) -> int:
        if place >= len(self._indexes):
            raise general_failure(f"the backend named operation {place} of {len(self._indexes)}")
        return self._indexes[place]
