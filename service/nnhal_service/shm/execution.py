"""Execution of requests that a client has defined over the data socket."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from google.protobuf.message import DecodeError

from nnhal import wire
from nnhal.alignment import align
from nnhal.errors import HalError, invalid_argument
from nnhal.shm import protocol
from nnhal.shm.protocol import Definition, OutputLocation, OutputRecord, Packet
from nnhal.types import PROT_WRITE, Bytes, ErrorStatus, ExecutionConfig, ExecutionResult, OutputShape
from nnhal.v1 import types_pb2
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.profiling import later_stage
from nnhal_service.requests.prepared_request import PreparedRequest
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session import Session


@dataclass
class ReadyRequest:
    """A request that has been defined over the data socket.

    Attributes:
        definition: the request; all of its pools are shared or returned.
        area: shared memory for returned outputs.
        input_bytes, output_bytes: size of the regions of inputs and outputs.
        shapes: output shapes of the last execution without returned outputs.
        body: encoded result of that execution; most executions of a request have the same.
    """

    definition: PreparedRequest
    area: Bytes
    input_bytes: int
    output_bytes: int
    shapes: tuple[OutputShape, ...] | None = None
    body: bytes = b""

    @staticmethod
    def of(session: Session, definition: Definition, loop_timeout_ns: int, limits: Limits) -> "ReadyRequest":
        """Validate the definition of a request, which counts as a part of its executions.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, or an area that is not shared); RESOURCE_EXHAUSTED_* (a limit).
        """
        message = types_pb2.Request()
        try:
            message.ParseFromString(definition.request)
        except DecodeError as error:
            raise invalid_argument(f"the request cannot be decoded: {error}") from None
        config = ExecutionConfig(loop_timeout_duration_ns=loop_timeout_ns)
        defined = PreparedRequest.of(session, definition.handle, message, config, limits)
        if defined.values:
            raise invalid_argument("a RUN packet has no values, so the request must have no ValuePool")
        valid = defined.request
        area = _area(session, definition)
        received = sum(region.end - region.start for region in valid.input_bindings if region is not None)
        sent = sum(region.end - region.start for region in valid.output_bindings if region is not None)
        return ReadyRequest(defined, area, received, sent)

    def execute(self, prepared: PreparedModel, packet: Packet, call: ExecutionCall) -> ExecutionResult:
        """Execute the request with the flags of a RUN packet."""
        config = self.definition.config
        if packet.flags:
            measure, profile = bool(packet.flags & protocol.MEASURE), bool(packet.flags & protocol.PROFILE)
            config = replace(config, measure_timing=measure, profile=profile)
        return prepared.execute_valid(self.definition.request, config, call)

    def pack_result(self, result: ExecutionResult, session: Session, quota: MemoryQuota) -> bytes:
        """Return the body of the RESULT packet, and write returned outputs to their area.

        Raises:
            HalError: RESOURCE_EXHAUSTED_PERSISTENT: the packet would be too large.
        """
        if result.returned:
            _require_size(result.output_shapes)
            return protocol.pack_outputs(list(self._place_outputs(result, session, quota)))
        if result.output_shapes != self.shapes:
            _require_size(result.output_shapes)
            self.shapes = result.output_shapes
            self.body = protocol.pack_outputs([OutputRecord(shape) for shape in result.output_shapes])
        return self.body

    def pack_profiled(
        self, result: ExecutionResult, session: Session, quota: MemoryQuota, started_ns: int
    ) -> tuple[int, bytes]:
        """Return the flags and the body of the RESULT packet with the spans of an execution.

        `started_ns` is time.perf_counter_ns() at the receipt.
        """
        executed_ns = time.perf_counter_ns()
        outputs = self.pack_result(result, session, quota)
        spans = (*result.spans, later_stage("encode", result, started_ns, executed_ns))
        message = types_pb2.ExecutionResult(spans=map(wire.span_message, spans), dropped_spans=result.dropped_spans)
        encoded = message.SerializeToString()
        if protocol.packet_size(len(outputs), len(encoded)) <= protocol.MAX_BYTES:
            return protocol.SPANS, protocol.prepend_spans(encoded, outputs)
        handle = OutputWriter(session, 0, quota).to_memory_object(np.frombuffer(encoded, np.uint8))
        return protocol.SPANS_IN_MEMORY, protocol.prepend_spans(handle, outputs)

    def _place_outputs(self, result: ExecutionResult, session: Session, quota: MemoryQuota) -> Iterator[OutputRecord]:
        """Yield the location of each output. Returned outputs go to the area while they fit, then to Memory objects."""
        returned = result.returned or (None,) * len(result.output_shapes)
        free = 0
        for shape, data in zip(result.output_shapes, returned, strict=True):
            if data is None:
                yield OutputRecord(shape)
            elif free + data.size <= self.area.size:
                self.area[free : free + data.size] = data
                yield OutputRecord(shape, OutputLocation.AREA, free)
                free += align(data.size)
            else:
                handle = OutputWriter(session, 0, quota).to_memory_object(data)
                yield OutputRecord(shape, OutputLocation.MEMORY, memory=handle)


def _require_size(shapes: Sequence[OutputShape]) -> None:
    if (size := protocol.result_size(shapes)) > protocol.MAX_BYTES:
        reason = (
            f"the result of {len(shapes)} outputs has up to {size} bytes; packets have at most {protocol.MAX_BYTES}"
        )
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, f"{reason}. Execute this request over gRPC")


def _area(session: Session, definition: Definition) -> Bytes:
    if definition.length == 0:
        return np.empty(0, np.uint8)
    memory = session.shared.memory(definition.area)
    start, end = definition.offset, definition.offset + definition.length
    if start < 0 or definition.length < 0 or end > memory.size or not memory.prot & PROT_WRITE:
        raise invalid_argument(f"bytes {start}..{end} of memory {definition.area} are not writable shared memory")
    return memory.view[start:end]
