"""A request that a client has defined, over gRPC or over the data socket, to run it with other values."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from nnhal import wire
from nnhal.errors import HalError, invalid_argument
from nnhal.types import (
    PROT_READ,
    UNMEASURED,
    Bytes,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    OutputShape,
    RequestMemoryPool,
    UnsetUnion,
    is_extension,
    is_fully_specified,
)
from nnhal.v1 import types_pb2
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import read_memory
from nnhal_service.sessions.session import Session

_SHARED_USE = nullcontext()
"""Use of a prepared model: any number of executions at once."""
_VALUE = UnsetUnion()
"""Pool that each run replaces."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class PreparedRequest:
    """A validated request. It has the handle of its model, so that it does not keep the model alive.

    Attributes:
        target: handle of a prepared model or a burst.
        request: the request. The pools whose values come with each run have none.
        values: index and size in bytes of each pool whose value comes with each run.
        output_shapes: shapes of the outputs; () if not all are known.
    """

    target: bytes
    request: ValidRequest
    config: ExecutionConfig
    values: tuple[tuple[int, int], ...]
    output_shapes: tuple[OutputShape, ...]

    @staticmethod
    def of(
        session: Session, target: bytes, message: types_pb2.Request, config: ExecutionConfig, limits: Limits
    ) -> "PreparedRequest":
        """Validate the definition of a request, which counts as a part of its executions.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*); RESOURCE_EXHAUSTED_* (a limit).
        """
        limits.require_request(message)
        request = wire.to_request(message, lambda pool: read_memory(session, pool))
        values = tuple((i, pool.value.size) for i, pool in enumerate(message.pools) if pool.HasField("value"))
        pools = list(request.pools)
        for index, size in values:
            pools[index] = _placeholder(index, size)
        prepared = find_model(session, target)[0]
        valid = prepared.validate_execution(replace(request, pools=tuple(pools)), config)
        pools = list(valid.pools)
        for index, _ in values:
            pools[index] = _VALUE
        return PreparedRequest(target, valid.with_pools(tuple(pools)), config, values, _known_shapes(prepared, valid))

    def execute(self, prepared: PreparedModel, values: Sequence[Bytes], call: ExecutionCall) -> ExecutionResult:
        """Execute the request with the values of a run, on the model of `find_model`, whose use the caller has entered.

        Raises:
            HalError: INVALID_ARGUMENT: wrong values; or as `PreparedModel.execute_valid`.
        """
        try:
            valid = self._with_values(values)
        except HalError:
            prepared.clear_outputs(self.request)
            raise
        return prepared.execute_valid(valid, self.config, call)

    def _with_values(self, values: Sequence[Bytes]) -> ValidRequest:
        """Return the request with the values of a run."""
        if not self.values and not values:
            return self.request
        if len(values) != len(self.values):
            raise invalid_argument(f"the run has {len(values)} values; its definition has {len(self.values)}")
        pools = list(self.request.pools)
        for (index, size), value in zip(self.values, values, strict=True):
            if value.size != size:
                raise invalid_argument(f"the value of pool {index} has {value.size} bytes; its definition has {size}")
            pools[index] = Memory(value, prot=PROT_READ)
        return self.request.with_pools(tuple(pools))

    def returned_values(self, result: ExecutionResult, max_bytes: int) -> list[Bytes] | None:
        """Return the values for a RunResponse; None if the result says more, or if they have more bytes together."""
        if (
            result.output_shapes != self.output_shapes
            or not result.output_sufficient_size
            or result.timing is not UNMEASURED
            or result.spans
        ):
            return None
        values = [data for data in result.returned if data is not None]
        return values if sum([data.size for data in values]) <= max_bytes else None


def find_model(session: Session, target: bytes) -> tuple[PreparedModel, AbstractContextManager[None]]:
    """Return the prepared model with a handle, or that of the burst with the handle; and the use of it to enter.

    Raises:
        HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is none, or it has been released.
    """
    value = session.get(target, object)
    if isinstance(value, Burst):
        return value.prepared_model, value.exclusive
    return session.get(target, PreparedModel), _SHARED_USE


def _placeholder(index: int, size: int) -> RequestMemoryPool:
    """Return a pool of a given size without memory of that size."""
    if size < 0:
        raise invalid_argument(f"the value of pool {index} has {size} bytes; expected at least 0")
    return Memory(np.broadcast_to(np.zeros(1, np.uint8), size), prot=PROT_READ)


def _known_shapes(prepared: PreparedModel, request: ValidRequest) -> tuple[OutputShape, ...]:
    shapes = []
    for operand, binding in zip(prepared.outputs, request.output_bindings, strict=True):
        if binding is None or not _is_known(operand.type, binding.declared):
            return ()
        shapes.append(binding.shape)
    return tuple(shapes)


def _is_known(type_: int, dimensions: Sequence[int]) -> bool:
    if is_extension(type_):  # without dimensions it may be a scalar or a tensor of unknown rank
        return len(dimensions) > 0 and 0 not in dimensions
    return is_fully_specified(type_, dimensions)
