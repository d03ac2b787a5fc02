"""Results of profiled executions, and the request that asks for one."""

from dataclasses import dataclass

from nnhal import wire
from nnhal.client.core.arrays import Outputs
from nnhal.client.core.prepared_model import to_nanoseconds
from nnhal.types import ExecutionConfig, Span
from nnhal.v1 import prepared_model_pb2, types_pb2

_CONFIG = wire.execution_config_message(ExecutionConfig(measure_timing=True, profile=True))


@dataclass(frozen=True)
class ExecutionProfile:
    """Result of a profiled execution.

    Attributes:
        outputs: the outputs, with `timing`.
        spans: the measured parts, in the order in which they ended; empty if the device does not support profiling.
        dropped: the number of spans that exceeded the limit and were dropped.
    """

    outputs: Outputs
    spans: tuple[Span, ...]
    dropped: int


def profile_request(
    session: bytes, handle: bytes, request: types_pb2.Request, deadline: float | None
) -> prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest:
    """Return the request of a profiled execution."""
    return prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest(
        session=session,
        prepared_model=handle,
        request=request,
        config=_CONFIG,
        deadline_ns=to_nanoseconds(deadline),
    )
