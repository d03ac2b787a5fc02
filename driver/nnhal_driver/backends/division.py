"""Large arrays whose operations run in pieces, with a check of the run before each piece.

numpy computes a function of a whole array in one call, which nothing can stop. So the arguments of a run with large
tensors are arrays of a class of their own: elementwise functions, reductions, conversions and copies of such an array
work on blocks. The results have the same bits. Only sums of floats along more than `BLOCK` elements may be rounded
differently. Small tensors are ordinary arrays, and cost nothing more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.graph import OperationView
from nnhal_driver.operations.call import OperationCall, Shape, Values
from nnhal_driver.scheduling.paced_check import proceed

LARGE = 2**21
"""Elements of all arguments above which a run is divided."""
BLOCK = 2**20
"""Elements of a block. Most functions compute it in a millisecond, and the slowest ones in 50."""

Region = tuple[slice, ...]
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class DividedCall(OperationCall):
    """Call whose arguments are divided if the tensors are large.

    Attributes:
        elements: number of elements of the inputs; of all tensors if the shapes of the outputs are known.
    """

    __slots__ = ("elements",)

    def __init__(
        self,
        view: OperationView,
        values: Values,
        memo: dict[str, object],
        inferred: Mapping[str, object] | None = None,
        check: Callable[[], None] = proceed,
        elements: int = 0,
    ) -> None:
        super().__init__(view, values, memo, inferred, check)
        self.elements = elements
        if not elements:
            inputs = (values[i] for i in view.operation.inputs)
            self.elements = sum(value.size for value in inputs if value is not None)

    def memoize_constant(self, key: str, make: Callable[[], T], *names: str) -> T:
        """Return a value as `OperationCall` does. It is kept without the check, so that this run ends no later one."""
        value = super().memoize_constant(key, lambda: plain(make()), *names)
        return cast(T, divide_large(value, self.check)) if isinstance(value, np.ndarray) else value

    def expect(self, shapes: Sequence[Shape]) -> None:
        """Count the elements of the outputs, whose shapes are known now."""
        self.elements += sum(map(prod, shapes))

    def array(self, name: str) -> AnyArray:
        """Return the value of an argument. Raises as `OperationCall.array`."""
        value = super().array(name)
        return divide(value, self.check) if self.elements > LARGE else value


def divide(array: AnyArray, check: Callable[[], None]) -> "Divided":
    """Return a view of an array whose operations call `check` between blocks."""
    divided = array.view(Divided)
    divided.check = check
    return divided


def divide_large(array: AnyArray, check: Callable[[], None]) -> AnyArray:
    """Return an array, divided if it is large."""
    return divide(array, check) if array.size > LARGE else array


def copy_of(array: AnyArray, check: Callable[[], None]) -> AnyArray:
    """Return a copy in row-major order, made in blocks if it is large."""
    copy: AnyArray = plain(divide_large(array, check).copy())
    return copy


def copy_to(target: AnyArray, array: AnyArray, check: Callable[[], None]) -> None:
    """Copy a value, in blocks if it is large."""
    np.copyto(target, divide_large(array, check))


def blocks(shape: Shape, axes: Iterable[int] | None = None, limit: int = 0) -> Iterator[Region]:
    """Yield the regions of blocks of at most `limit` elements, by default `BLOCK`, in row-major order.

    The dimensions `axes`, by default all, are cut in this order. A block is larger if that does not suffice.
    """
    if prod(shape) <= (limit or BLOCK):
        yield tuple([slice(0, length) for length in shape])
        return
    extents = list(shape)
    for axis in range(len(shape)) if axes is None else axes:
        rest = prod(extents) // max(1, extents[axis])
        extents[axis] = min(extents[axis], max(1, (limit or BLOCK) // max(1, rest)))
    ranges = (range(0, length, max(1, extent)) for length, extent in zip(shape, extents, strict=True))
    for starts in product(*ranges):
        yield tuple(slice(start, start + extent) for start, extent in zip(starts, extents, strict=True))


def _part(value: Any, region: Region) -> Any:
    """Return the part of an argument that is broadcast to a region of the result."""
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    aligned = zip(value.shape, region[len(region) - value.ndim :], strict=True)
    return value[tuple(slice(None) if length == 1 else part for length, part in aligned)]


def plain(value: Any) -> Any:
    """Return an array, or those of a tuple or list, as ordinary arrays. Other values stay what they are."""
    if isinstance(value, Divided):
        return value.view(np.ndarray)
    return type(value)(map(plain, value)) if isinstance(value, tuple | list) else value


class Divided(np.ndarray[Any, np.dtype[Any]]):
    """View of an array whose operations run in blocks.

    Attributes:
        check: called before each block; raises to end the run.
    """

    check: Callable[[], None]

    def __array_finalize__(self, source: object) -> None:
        self.check = getattr(source, "check", proceed)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a ufunc in blocks."""
        arrays, kwargs = plain(inputs), {name: plain(value) for name, value in kwargs.items()}
        can_divide = ufunc.signature is None and kwargs.get("where", True) is True
        if method == "__call__" and can_divide:
            return self._apply(ufunc, arrays, **kwargs)
        if can_divide and arrays[0].size > BLOCK:
            if method == "reduce" and ("initial" not in kwargs or ufunc.identity is None):
                return self._reduce(ufunc, *arrays, **kwargs)
            if method == "accumulate":
                return self._accumulate(ufunc, *arrays, **kwargs)
            if method == "reduceat":
                return self._reduce_at(ufunc, *arrays, **kwargs)
        self.check()
        return self._divide(getattr(ufunc, method)(*arrays, **kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply a function of numpy. Those that numpy writes in Python work in blocks because their parts do."""
        if func in _FUNCTIONS:
            return _FUNCTIONS[func](self, *plain(args), **{name: plain(value) for name, value in kwargs.items()})
        self.check()
        return super().__array_function__(func, types, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """Return a view or a selection; an ordinary array if it is small."""
        if isinstance(key, tuple) and all(isinstance(index, np.ndarray) for index in key):
            return self._select(plain(key))
        result = super().__getitem__(key)
        return plain(result) if isinstance(result, Divided) and result.size <= BLOCK else result

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a value into a view, in blocks."""
        target = np.ndarray.__getitem__(self, key)
        if isinstance(target, Divided) and target.size > BLOCK and np.may_share_memory(target, self):
            _copy_to(self, plain(target), plain(value), "unsafe")
        else:
            super().__setitem__(key, plain(value))

    def astype(self, dtype: Any, *args: Any, copy: bool = True, **kwargs: Any) -> Any:  # type: ignore[override]
        """Convert in blocks."""
        if not copy and self.dtype == dtype:
            return self
        out = np.empty(self.shape, dtype)
        _copy_to(self, out, plain(self), "unsafe")
        return self._divide(out)

    def copy(self, order: Any = "C") -> Any:
        """Copy in blocks, to row-major order."""
        return self.astype(self.dtype)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Return a view, or else a copy that is made in blocks."""
        try:
            return super().reshape(*shape, copy=False)
        except ValueError:
            return np.ndarray.reshape(self.copy(), *shape)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """Repeat each element as often, in blocks."""
        if axis is None or np.ndim(repeats):
            return super().repeat(repeats, axis)
        shape = list(self.shape)
        shape.insert(axis % self.ndim + 1, int(repeats))
        repeated = np.broadcast_to(np.expand_dims(self, axis % self.ndim + 1), shape, subok=True)
        return repeated.reshape(*shape[: axis % self.ndim], -1, *shape[axis % self.ndim + 2 :])

    def argmax(self, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Search in blocks. NaN must not occur."""
        return self._search(np.argmax, np.greater, axis)

    def argmin(self, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Search in blocks. NaN must not occur."""
        return self._search(np.argmin, np.less, axis)

    def _divide(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(map(self._divide, result))
        return divide(result, self.check) if isinstance(result, np.ndarray) else result

    def _apply(
        self, function: Callable[..., Any], arrays: Sequence[Any], out: Sequence[Any] = (), **kwargs: Any
    ) -> Any:
        shape = np.broadcast_shapes(*map(np.shape, (*arrays, *out)))
        for region in blocks(shape):
            self.check()
            parts = (_part(array, region) for array in arrays)
            if out and isinstance(function, np.ufunc):
                function(*parts, out=tuple(array[(*region, ...)] for array in out), **kwargs)
                continue
            results = function(*parts, **kwargs)
            results = results if isinstance(results, tuple) else (results,)
            out = out or tuple(np.empty(shape, result.dtype) for result in results)
            for target, result in zip(out, results, strict=True):
                target[region] = result
        if not out:
            return self._divide(function(*arrays, **kwargs))
        return self._divide(out[0] if len(out) == 1 else tuple(out))

    def _reduce(
        self, ufunc: np.ufunc, array: AnyArray, axis: Any = 0, keepdims: bool = False, out: Any = (), **kwargs: Any
    ) -> Any:
        reduced = _axes(axis, array.ndim)
        total: AnyArray | None = None
        for region in blocks(array.shape, (*(i for i in range(array.ndim) if i not in reduced), *reduced)):
            self.check()
            part = ufunc.reduce(array[region], axis=reduced, keepdims=True, **kwargs)
            if total is None:
                total = np.empty([1 if i in reduced else n for i, n in enumerate(array.shape)], part.dtype)
            target = total[tuple(slice(None) if i in reduced else r for i, r in enumerate(region))]
            target[...] = ufunc(target, part) if any(region[i].start for i in reduced) else part
        assert total is not None
        result = total if keepdims else total.squeeze(reduced)
        if out:
            out[0][...] = result
            return self._divide(out[0])
        return self._divide(result) if result.ndim else result[()]

    def _accumulate(self, ufunc: np.ufunc, array: AnyArray, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
        axis %= array.ndim
        first = (slice(None),) * axis + (slice(0, 1),)
        total: AnyArray | None = None
        for region in blocks(array.shape, (*_others(axis, array.ndim), axis)):
            self.check()
            part = array[region]
            if total is None:
                total = np.empty(array.shape, ufunc.accumulate(part[first], axis, **kwargs).dtype)
            if start := region[axis].start:
                part = part.astype(total.dtype)
                last = (*region[:axis], slice(start - 1, start), *region[axis + 1 :])
                part[first] = ufunc(total[last], part[first])
            ufunc.accumulate(part, axis, out=total[region], **kwargs)
        return self._divide(total)

    def _select(self, indices: Sequence[AnyArray]) -> Any:
        array, shape = plain(self), np.broadcast_shapes(*map(np.shape, indices))
        out = np.empty((*shape, *array.shape[len(indices) :]), array.dtype)
        for region in blocks(out.shape):
            self.check()
            selected = (_part(index, region[: len(shape)]) for index in indices)
            out[region] = array[(*selected, *region[len(shape) :])]
        return self._divide(out)

    def _reduce_at(self, ufunc: np.ufunc, array: AnyArray, indices: Any, axis: int = 0, **kwargs: Any) -> Any:
        shape = (*array.shape[:axis], len(indices), *array.shape[axis + 1 :])
        out = np.empty(shape, array.dtype)
        for region in blocks(array.shape, _others(axis, array.ndim)):
            self.check()
            target = out[(*region[:axis], slice(None), *region[axis + 1 :])]
            target[...] = ufunc.reduceat(array[region], indices, axis, **kwargs)
        return self._divide(out)

    def _search(self, function: Callable[..., Any], is_better: np.ufunc, axis: Any) -> Any:
        if axis is None:
            return self.reshape(-1)._search(function, is_better, 0)
        array, axis = plain(self), axis % self.ndim
        shape = tuple(1 if i == axis else n for i, n in enumerate(self.shape))
        indices, values = np.zeros(shape, np.intp), np.empty(shape, self.dtype)
        for region in blocks(array.shape, (*_others(axis, array.ndim), axis)):
            self.check()
            found = function(array[region], axis, keepdims=True)
            value = np.take_along_axis(array[region], found, axis)
            target, start = (*region[:axis], slice(None), *region[axis + 1 :]), region[axis].start
            replaced = is_better(value, values[target]) if start else True
            np.copyto(indices[target], found + start, where=replaced)
            np.copyto(values[target], value, where=replaced)
        return indices.squeeze(axis)[()]


def _others(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(i for i in range(rank) if i != axis)


def look_up(table: AnyArray, indices: AnyArray) -> AnyArray:
    """Return the elements of a table at some indices."""
    look = partial(np.take, table)
    values: AnyArray = indices._apply(look, (plain(indices),)) if isinstance(indices, Divided) else look(indices)
    return values


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    return tuple(i % rank for i in (axis if isinstance(axis, tuple) else (axis,)))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""Functions of numpy that work in blocks. The first argument has the check."""


def _replaces(function: Any) -> Callable[[F], F]:
    def register(replacement: F) -> F:
        _FUNCTIONS[function] = replacement
        return replacement

    return register


@_replaces(np.copyto)
def _copy_to(self: Divided, target: Any, source: Any, casting: Any = "same_kind", where: Any = True) -> None:
    for region in blocks(target.shape):
        self.check()
        np.copyto(target[(*region, ...)], _part(source, region), casting=casting, where=_part(where, region))


@_replaces(np.where)
def _where(self: Divided, condition: Any, x: Any, y: Any) -> Any:
    return self._apply(np.where, (condition, x, y))


@_replaces(np.searchsorted)
def _search_sorted(self: Divided, rows: Any, values: Any, side: Any = "left") -> Any:
    return self._apply(lambda part: np.searchsorted(rows, part, side), (values,))


@_replaces(np.concatenate)
def _concatenate(self: Divided, arrays: Sequence[AnyArray], axis: int = 0, **_: Any) -> Any:
    axis %= arrays[0].ndim
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    out = np.empty(shape, np.result_type(*(array.dtype for array in arrays)))
    start = 0
    for array in arrays:
        end = start + array.shape[axis]
        _copy_to(self, out[(slice(None),) * axis + (slice(start, end),)], array)
        start = end
    return self._divide(out)


@_replaces(np.take)
def _take(self: Divided, array: AnyArray, indices: Any, axis: int | None = None) -> Any:
    axis, rank = (axis or 0) % array.ndim, np.ndim(indices)
    out = np.empty((*array.shape[:axis], *np.shape(indices), *array.shape[axis + 1 :]), array.dtype)
    for region in blocks(out.shape):
        self.check()
        chosen = _part(indices, region[axis : axis + rank]) if rank else indices
        out[region] = array[(*region[:axis], chosen, *region[axis + rank :])]
    return self._divide(out)
