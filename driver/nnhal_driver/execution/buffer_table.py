"""Tables of the driver-managed buffers of devices and services: allocation, and lookup of tokens (hal-surface 9.7)."""

import secrets
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from nnhal.errors import invalid_argument, limit_exceeded
from nnhal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    ErrorStatus,
    Request,
)
from nnhal_driver.execution.buffer import Buffer, BufferState, ReserveMemory, ResolvedBuffer, Roles
from nnhal_driver.validation.buffer import (
    BUFFER_USE_RULES,
    AllocationRequest,
    BufferUse,
    ListedRole,
    PreparedModelIO,
    validate_allocation,
)

MAX_TOKEN = 2**31 - 1


class BufferOwner(PreparedModelIO, Protocol):
    """Prepared model that buffers have roles in. Compared by identity."""

    @property
    def buffers(self) -> "BufferTable":
        """The buffers of its device."""


class LiveBuffers:
    """The live buffers of a service by token, which the devices of the service share. Thread safe."""

    def __init__(self) -> None:
        self._buffers: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def create(self, state: BufferState, roles: Mapping[PreparedModelIO, Roles]) -> Buffer:
        """Create a buffer with a free token. Tokens are random: their order would tell how many others allocate."""
        with self._lock:
            while (token := secrets.randbelow(MAX_TOKEN) + 1) in self._buffers:
                pass
            buffer = Buffer(token, state, roles)
            self._buffers[buffer.token] = buffer
        return buffer

    def get(self, token: int) -> Buffer | None:
        """Return the buffer with a token; None if there is none."""
        return self._buffers.get(token)


class BufferTable:
    """The buffers of one device, of at most `tensor_bytes` each. Thread safe. `live`: those of the service."""

    def __init__(self, tensor_bytes: int, live: LiveBuffers) -> None:
        self._tensor_bytes = tensor_bytes
        self._live = live

    def allocate(
        self,
        desc: BufferDesc,
        models: Sequence[BufferOwner | None],
        inputs: Sequence[BufferRole],
        outputs: Sequence[BufferRole],
        reserve: ReserveMemory,
    ) -> Buffer:
        """Allocate a buffer; see `Device.allocate`."""
        ours = [model if model is not None and model.buffers is self else None for model in models]
        roles = [ListedRole(False, *pair) for pair in enumerate(inputs)]
        roles += [ListedRole(True, *pair) for pair in enumerate(outputs)]
        type_ = validate_allocation(AllocationRequest(desc, ours, roles))
        dimensions = type_.operand.dimensions
        size = type_.byte_size(dimensions) if type_.is_fully_specified(dimensions) else 0
        if size is None or size > self._tensor_bytes:
            reason = f"the buffer would have more than {self._tensor_bytes} bytes"
            raise limit_exceeded("tensor_bytes", reason, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)
        state = BufferState(type_, reserve)
        by_model: dict[PreparedModelIO, set[tuple[bool, int]]] = defaultdict(set)
        for role in roles:
            model = ours[role.role.model_index]
            assert model is not None
            by_model[model].add((role.is_output, role.role.io_index))
        return self._live.create(state, {model: frozenset(uses) for model, uses in by_model.items()})

    def resolve(self, model: BufferOwner, request: Request) -> Request:
        """Look up the buffers of a valid request and check their use (V-REQ-02, V-TOKEN-01, -03, -04).

        A buffer without a role in this prepared model is treated like an unknown one. Roles are only granted to clients
        that have the prepared model, so guessed tokens of other clients are useless.

        Returns:
            the request with a `ResolvedBuffer` for each token; the same request if it has them already.

        Raises:
            HalError: INVALID_ARGUMENT.
        """
        tokens = [(i, pool) for i, pool in enumerate(request.pools) if isinstance(pool, BufferToken)]
        if all(isinstance(pool, ResolvedBuffer) for _, pool in tokens):
            return request
        buffers = {i: self._find(model, pool.token) for i, pool in tokens}
        in_buffers = [
            (is_output, number, argument, buffers[argument.location.pool_index])
            for is_output, arguments in ((False, request.inputs), (True, request.outputs))
            for number, argument in enumerate(arguments)
            if not argument.has_no_value and argument.location.pool_index in buffers
        ]
        times = Counter(buffer for *_, buffer in in_buffers)
        for is_output, number, argument, buffer in in_buffers:
            roles, operand = buffer.roles[model], buffer.state.type.operand
            use = BufferUse(is_output, number, argument.dimensions, times[buffer], roles, operand)
            BUFFER_USE_RULES.check(use, lambda use=use: use.name)  # type: ignore[misc]
        pools = list(request.pools)
        for index, buffer in buffers.items():
            pools[index] = ResolvedBuffer(buffer.token, buffer.state)
        return replace(request, pools=tuple(pools))

    def clear_outputs(self, model: BufferOwner, request: Request) -> None:
        """Make the output buffers of a failed execution uninitialized, also of one that its launch refused as invalid.

        A buffer that was not allocated for an output cannot be used as one, so it keeps its value.
        """
        for number, argument in enumerate(request.outputs):
            index = argument.location.pool_index
            if argument.has_no_value or not 0 <= index < len(request.pools):
                continue
            pool = request.pools[index]
            if isinstance(pool, ResolvedBuffer):
                pool.state.clear()
            elif isinstance(pool, BufferToken):
                buffer = self._live.get(pool.token)
                if buffer is not None and (True, number) in buffer.roles.get(model, ()):
                    buffer.state.clear()

    def _find(self, model: BufferOwner, token: int) -> Buffer:
        buffer = self._live.get(token)
        if buffer is None or model not in buffer.roles:
            raise invalid_argument(f"token {token} names no live buffer with a role in this prepared model", "V-REQ-02")
        return buffer
