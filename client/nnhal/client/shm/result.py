"""Results of executions on a channel."""

from dataclasses import dataclass
from functools import lru_cache

from nnhal.alignment import align
from nnhal.client.core.arrays import ModelIO, Outputs, require_dtype, value_size
from nnhal.client.core.buffered_execution import AnyOutputs, BufferedExecution
from nnhal.errors import HalError
from nnhal.shm.protocol import (
    NONE,
    SPANS_IN_MEMORY,
    SUFFICIENT,
    OutputLocation,
    OutputRecord,
    Packet,
    split_spans,
    unpack_outputs,
)
from nnhal.types import UNMEASURED, AnyArray, Bytes, Operand, Timing
from nnhal.v1 import types_pb2


@dataclass(eq=False)
class PendingDefinition:
    """Definition of a request for one execution, which fails if the definition is rejected.

    Attributes:
        error: the reason of a rejection.
    """

    error: HalError | None = None


@dataclass(frozen=True, eq=False)
class DefinedRequest:
    """Request that the service knows, with views of its tensors.

    Attributes:
        number: its number on the channel.
        inputs: view of each input, or None if it is omitted or cached.
        outputs: view of each output, or None if its size is not known.
        scratch: view of the area for outputs of unknown size.
        pending: the definition, if the request is for one execution that uses buffers.
        stored: positions of outputs in buffers that `outputs` does not have.
    """

    number: int
    inputs: tuple[AnyArray | None, ...]
    outputs: tuple[AnyArray | None, ...]
    scratch: Bytes
    pending: PendingDefinition | None = None
    stored: frozenset[int] = frozenset()


class ShmResult:
    """Result of an execution.

    Attributes:
        memories: handles of the outputs and spans that are too large for the channel. The caller reads and releases
            them.
    """

    def __init__(self, packet: Packet, request: DefinedRequest) -> None:
        self._request = request
        self._timing = Timing(packet.first, packet.second) if packet.first != NONE else UNMEASURED
        body = packet.body
        self._spans, self._spans_in_memory = b"", False
        if packet.flags > SUFFICIENT:
            self._spans, body = split_spans(body)
            self._spans_in_memory = bool(packet.flags & SPANS_IN_MEMORY)
        self._records, self.memories = _unpack_records(body, len(request.outputs), request.stored)
        if self._spans_in_memory:
            self.memories = (*self.memories, self._spans)

    def scratch_size(self, io: ModelIO) -> int:
        """Return the size of all returned outputs together, in bytes."""
        pairs = zip(io.outputs, self._records, strict=True)
        sizes = (_output_size(operand, record) for operand, record in pairs if record.location != OutputLocation.REGION)
        return sum(map(align, sizes))

    def outputs(
        self, io: ModelIO, execution: BufferedExecution | None, memories: dict[bytes, Bytes], *, copy: bool = True
    ) -> AnyOutputs:
        """Return the outputs, or the buffers that they were written to.

        Args:
            io: inputs and outputs of the model.
            execution: the execution, if it uses buffers.
            memories: the bytes of `memories`.
            copy: whether to copy the outputs of an execution without buffers. Otherwise they are views of the slot.
        """
        if execution is None:
            return self.plain_outputs(io, memories, copy=copy)
        triples = zip(io.outputs, self._records, self._request.outputs, strict=True)
        execution.set_shapes(record.shape.dimensions for record in self._records)
        arrays = [
            None if target is not None else self._output(*triple, memories).copy()
            for target, triple in zip(execution.targets, triples, strict=True)
        ]
        return execution.combine_outputs(arrays, self._timing)

    def plain_outputs(self, io: ModelIO, memories: dict[bytes, Bytes], *, copy: bool = True) -> Outputs:
        """Return the outputs of an execution without buffers."""
        triples = zip(io.outputs, self._records, self._request.outputs, strict=True)
        arrays = [self._output(*triple, memories) for triple in triples]
        if copy:
            arrays = [array.copy() for array in arrays]
        return Outputs.of(arrays, io.output_names, self._timing)

    @property
    def is_profiled(self) -> bool:
        """True if the service measured spans. One of an older release ignores the flag."""
        return bool(self._spans)

    def spans(self, memories: dict[bytes, Bytes]) -> types_pb2.ExecutionResult:
        """Return a message with the spans, given the bytes of `memories`."""
        encoded = memories[self._spans].tobytes() if self._spans_in_memory else self._spans
        return types_pb2.ExecutionResult.FromString(encoded)

    def _output(
        self, operand: Operand, record: OutputRecord, view: AnyArray | None, memories: dict[bytes, Bytes]
    ) -> AnyArray:
        if view is not None:
            return view
        if record.location == OutputLocation.MEMORY:
            raw = memories[record.memory]
        else:
            raw = self._request.scratch[record.offset : record.offset + _output_size(operand, record)]
        return raw.view(require_dtype(operand)).reshape(record.shape.dimensions)


@lru_cache(maxsize=256)
def _unpack_records(
    body: bytes, count: int, stored: frozenset[int]
) -> tuple[tuple[OutputRecord, ...], tuple[bytes, ...]]:
    """Return `count` outputs of a RESULT that are not `stored`, and the handles of their Memory objects.

    Cached, because the results of one request mostly have the same bytes.
    """
    all_records = unpack_outputs(body, count + len(stored))
    records = tuple(record for i, record in enumerate(all_records) if i not in stored)
    return records, tuple(record.memory for record in records if record.location == OutputLocation.MEMORY)


def _output_size(operand: Operand, record: OutputRecord) -> int:
    """Return the size of an output in bytes."""
    return value_size(operand, record.shape.dimensions)
