"""Driver-managed buffers: IBuffer, a device's table of them, and their use by executions (hal-surface 9.7).

A buffer holds one value at a time, and a value never changes: whoever writes makes a new one and puts it in whole,
whoever reads takes what is there and keeps it as long as needed. So copies and executions on the same buffer wait for
nobody, and nobody ever sees half a value.
"""

import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from driver.validation.buffer import (
    USE,
    Allocation,
    Dimensions,
    Ends,
    Role,
    Use,
    contradiction,
    validate_allocation,
    validate_copy_from,
    validate_copy_to,
)
from driver.validation.operand import bounded_byte_size
from nnhal.errors import HalError, general_failure, invalid_argument
from nnhal.types import (
    SCALAR_TYPES,
    AnyArray,
    BufferDesc,
    BufferRole,
    BufferToken,
    Bytes,
    ErrorKind,
    ErrorStatus,
    Memory,
    Operand,
    OutputShape,
    Request,
    RequestArgument,
    UnsetUnion,
    is_fully_specified,
)

MAXIMUM_TOKEN = 2**31 - 1

Reserve = Callable[[int], object]
"""Accounts for bytes that a buffer is going to hold; they are given back when what it returns is let go."""


def unaccounted(size: int) -> None:
    """Lets buffers have what they need."""


Roles = frozenset[tuple[bool, int]]
"""Uses of a buffer in one prepared model: whether it is an output, and its number."""

_EMPTY: Bytes = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What a buffer holds: read-only bytes, their shape, and what accounts for them."""

    data: Bytes
    dimensions: Dimensions
    reservation: object


class Contents:
    """The inside of a buffer. Executions hold it, so that it outlives the buffer where it must. Thread safe.

    Attributes:
        operand: type, quantisation and shape of what it can hold; 0 and () in the shape are unknown.
        size: bytes of its value; None where the shape is not fully known.

    Raises:
        HalError: what `reserve` raises, when the size is known and too much.
    """

    def __init__(self, operand: Operand, reserve: Reserve) -> None:
        self.operand = operand
        known = is_fully_specified(operand.type, operand.dimensions)
        self.size = bounded_byte_size(operand.type, operand.dimensions) if known else None
        self._reserve = reserve
        self._whole = None if self.size is None else reserve(self.size)
        self._value: Value | None = None
        self._lock = threading.Lock()

    @property
    def value(self) -> Value | None:
        """What it holds; None while it is uninitialised."""
        return self._value

    def put(self, data: Bytes, dimensions: Dimensions) -> None:
        """Takes over bytes that nobody changes any more.

        Raises:
            HalError: what `reserve` raises; it is uninitialised then.
        """
        with self._lock:
            reservation = self._whole
            if self.size is None:
                if self._value is not None and self._value.data.size == data.size:
                    reservation = self._value.reservation
                else:
                    self._value = None  # what it had is given back first
                    reservation = self._reserve(data.size)
            self._value = Value(data, dimensions, reservation)

    def clear(self) -> None:
        """Makes it uninitialised."""
        with self._lock:
            self._value = None

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Surrounds what fills it: when that fails, it is uninitialised."""
        try:
            yield
        except BaseException:
            self.clear()
            raise


class Buffer:
    """IBuffer. Thread safe. Lives as long as somebody holds it; its token is unknown afterwards.

    Attributes:
        token: > 0, unique among the live buffers of its device.
        roles: its uses, by prepared model. They do not keep the model alive.
    """

    def __init__(self, token: int, contents: Contents, roles: Mapping[Ends, Roles]) -> None:
        self.token = token
        self.contents = contents
        self.roles = weakref.WeakKeyDictionary(roles)

    def copy_from(self, source: Memory | UnsetUnion, dimensions: Dimensions = ()) -> None:
        """Fills the buffer.

        Args:
            source: memory of the buffer's size exactly.
            dimensions: shape of the data; () where the buffer's own is fully known.

        Raises:
            HalError: INVALID_ARGUMENT (V-POOL, V-TOKEN-05), RESOURCE_EXHAUSTED_*. The buffer is uninitialised then.
        """
        with self.contents.filling():
            shape = validate_copy_from(self.contents.operand, source, dimensions)
            assert isinstance(source, Memory)
            self.contents.put(_read_only(source.view.copy()), shape)

    def copy_to(self, target: Memory | UnsetUnion) -> None:
        """Writes the value into memory of the buffer's size exactly.

        Raises:
            HalError: INVALID_ARGUMENT (V-POOL, V-TOKEN-05); GENERAL_FAILURE: the buffer is uninitialised.
        """
        value = self.contents.value
        memory = validate_copy_to(target, value.data.size if value else self.contents.size)
        memory.view[:] = self._initialised(value).data

    def read(self) -> Bytes:
        """A copy of the value.

        Raises:
            HalError: GENERAL_FAILURE: the buffer is uninitialised.
        """
        return self._initialised(self.contents.value).data.copy()

    def _initialised(self, value: Value | None) -> Value:
        if value is None:
            raise general_failure("the buffer is uninitialised", "V-TOKEN-05")
        return value


class BufferOutput:
    """An output that lies in a buffer, which gets it once the execution has succeeded."""

    def __init__(self, declared: Dimensions, contents: Contents) -> None:
        self.declared = declared
        self.shape = OutputShape(declared)
        self.data: Bytes = _EMPTY
        self._contents = contents

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Keeps the value, or a copy of it.

        Raises:
            HalError: GENERAL_FAILURE, V-TOKEN-06: the buffer was allocated for another shape.
        """
        operand = self._contents.operand
        shape = () if operand.type in SCALAR_TYPES else array.shape
        if complaint := contradiction(shape, operand.dimensions):
            raise general_failure(f"an output has {complaint} in its buffer", "V-TOKEN-06")
        owned = keep and array.flags.owndata and array.flags.c_contiguous
        kept = array if owned else np.array(array, order="C")
        self.data = _read_only(kept.reshape(-1).view(np.uint8))
        self.shape = OutputShape(shape)

    def deliver(self) -> None:
        """Makes the output the buffer's value; the execution has succeeded.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*: there is no room for it.
        """
        self._contents.put(self.data, self.shape.dimensions)

    def withdraw(self) -> None:
        """Leaves the buffer uninitialised; the execution has no outputs."""
        self._contents.clear()


@dataclass(frozen=True, slots=True, eq=False)
class HeldBuffer(BufferToken):
    """A token whose buffer has been found; it holds the inside, so that a client may drop the buffer meanwhile."""

    contents: Contents


def empty_outputs(request: Request) -> None:
    """Leaves the buffers that an execution was to fill uninitialised: it has failed."""
    for argument in request.outputs:
        if not argument.has_no_value and isinstance(pool := request.pools[argument.location.pool_index], HeldBuffer):
            pool.contents.clear()


class BufferValues:
    """What inputs of one execution read from buffers; those that share a buffer see the same value."""

    def __init__(self, request: Request) -> None:
        self._found: dict[Contents, Value | None] = {}
        for pool in request.pools:
            if isinstance(pool, HeldBuffer):
                self._found[pool.contents] = pool.contents.value

    def read(self, pool: HeldBuffer, dimensions: Dimensions, place: str) -> Bytes:
        """The bytes of an input.

        Args:
            dimensions: the shape that model and request give it.
            place: what a person calls it.

        Raises:
            HalError: GENERAL_FAILURE, V-TOKEN-02: the buffer is uninitialised; INVALID_ARGUMENT, V-TOKEN-04: its value
                has another shape.
        """
        value = self._found[pool.contents]
        if value is None:
            raise general_failure(f"{place} lies in a buffer that is uninitialised", "V-TOKEN-02")
        if dimensions != value.dimensions:
            shapes = f"{list(dimensions)}, but its buffer holds {list(value.dimensions)}"
            raise invalid_argument(f"{place} has shape {shapes}", "V-TOKEN-04")
        return value.data


class Prepared(Ends, Protocol):
    """A prepared model, as far as buffers know it. Compared by identity."""

    @property
    def buffers(self) -> "Buffers":
        """Those of its device."""


class Buffers:
    """The live buffers of one device, by token. Thread safe.

    Args:
        tensor_bytes: the most that one buffer may have.
    """

    def __init__(self, tensor_bytes: int) -> None:
        self._tensor_bytes = tensor_bytes
        self._live: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self._last = 0
        self._lock = threading.Lock()

    def allocate(
        self,
        desc: BufferDesc,
        models: Sequence[Prepared | None],
        inputs: Sequence[BufferRole],
        outputs: Sequence[BufferRole],
        reserve: Reserve,
    ) -> Buffer:
        """Makes a buffer; see `Device.allocate`."""
        ours = [model if model is not None and model.buffers is self else None for model in models]
        roles = [
            Role(is_output, *pair) for is_output, ends in ((False, inputs), (True, outputs)) for pair in enumerate(ends)
        ]
        operand = validate_allocation(Allocation(desc, ours, roles))
        self._hold_size(operand)
        contents = Contents(operand, reserve)
        by_model: dict[Ends, set[tuple[bool, int]]] = defaultdict(set)
        for role in roles:
            model = ours[role.role.model_index]
            assert model is not None
            by_model[model].add((role.is_output, role.role.io_index))
        with self._lock:
            buffer = Buffer(self._free_token(), contents, {model: frozenset(ends) for model, ends in by_model.items()})
            self._live[buffer.token] = buffer
        return buffer

    def held(self, model: Prepared, request: Request) -> Request:
        """Finds the buffers of a valid request and judges their use (V-REQ-02, V-TOKEN-01, -03, -04).

        A buffer that has no role in this prepared model is answered as one that is not there. Roles are given with
        prepared models in hand, so guessing tokens of others leads nowhere.

        Returns:
            the request, with a HeldBuffer for each token. One that has them already is given back.

        Raises:
            HalError: INVALID_ARGUMENT.
        """
        tokens = [(i, pool) for i, pool in enumerate(request.pools) if isinstance(pool, BufferToken)]
        if all(isinstance(pool, HeldBuffer) for _, pool in tokens):
            return request
        found = {i: self._find(model, pool.token) for i, pool in tokens}
        placed = [one for one in _arguments(request) if one.argument.location.pool_index in found]
        times = Counter(found[one.argument.location.pool_index] for one in placed)
        for is_output, number, argument in placed:
            buffer = found[argument.location.pool_index]
            roles, operand = buffer.roles[model], buffer.contents.operand
            use = Use(is_output, number, argument.dimensions, times[buffer], roles, operand)
            USE.check(use, lambda use=use: use.place)  # type: ignore[misc]
        pools = list(request.pools)
        for index, buffer in found.items():
            pools[index] = HeldBuffer(buffer.token, buffer.contents)
        return replace(request, pools=tuple(pools))

    def _find(self, model: Prepared, token: int) -> Buffer:
        buffer = self._live.get(token)
        if buffer is None or model not in buffer.roles:
            raise invalid_argument(f"token {token} names no live buffer with a role in this prepared model", "V-REQ-02")
        return buffer

    def _hold_size(self, operand: Operand) -> None:
        if not is_fully_specified(operand.type, operand.dimensions):
            return
        size = bounded_byte_size(operand.type, operand.dimensions)
        if size is None or size > self._tensor_bytes:
            raise HalError(
                ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
                f"the buffer would have more than {self._tensor_bytes} bytes (limit tensor_bytes)",
                kind=ErrorKind.LIMIT,
                limit="tensor_bytes",
            )

    def _free_token(self) -> int:
        """The next token that no live buffer has: one that is let go comes again as late as can be."""
        while True:
            self._last = self._last % MAXIMUM_TOKEN + 1
            if self._last not in self._live:
                return self._last


def _read_only(data: Bytes) -> Bytes:
    data.flags.writeable = False
    return data


class _Argument(NamedTuple):
    is_output: bool
    number: int
    argument: RequestArgument


def _arguments(request: Request) -> Iterator[_Argument]:
    """Every argument with a value."""
    for is_output, arguments in ((False, request.inputs), (True, request.outputs)):
        for number, argument in enumerate(arguments):
            if not argument.has_no_value:
                yield _Argument(is_output, number, argument)
