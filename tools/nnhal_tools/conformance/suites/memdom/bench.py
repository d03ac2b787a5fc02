"""Models, buffers and requests for checks of buffers (checklist 9), and the decorator that registers the checks.

The test operand Z has one of four types and the shape [1, 32, 32, 8]. CONV(Z, k) has k independent CONV_2D operations.
ADD(Z) has one ADD whose activation is an input.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod

from nnhal.types import DTYPES, ErrorStatus, OperandType
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS
from nnhal_tools.conformance.paths.buffers import (
    AllocatedBuffer,
    Roles,
    allocated_buffer,
    copy_from,
    place_in_pool,
)
from nnhal_tools.conformance.paths.path import check_steps
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph
from nnhal_tools.conformance.vectors.case import Case

SHAPE = (1, 32, 32, 8)
CHANNELS = SHAPE[-1]

EXECUTORS = ("SYNC", "BURST", "FENCED")


@dataclass(frozen=True)
class TestOperand:
    """Operand Z of the checklist."""

    type: str
    shape: tuple[int, ...] = SHAPE
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_quantized(self) -> bool:
        """True if the operand has a scale."""
        return self.scale != 0

    @property
    def size(self) -> int:
        """Size in bytes of the shape [1, 32, 32, 8] in its type."""
        return prod(SHAPE) * DTYPES[OperandType[self.type]].itemsize

    @property
    def with_other_type(self) -> "TestOperand":
        """Copy with the other type of its pair."""
        return replace(self, type=_PAIRS[self.type])

    @property
    def with_unknown_batch(self) -> "TestOperand":
        """Copy with an unknown dimension 0."""
        return replace(self, shape=(0, *self.shape[1:]))


_FLOAT, _HALF, _QUANT, _SIGNED = (
    "TENSOR_FLOAT32",
    "TENSOR_FLOAT16",
    "TENSOR_QUANT8_ASYMM",
    "TENSOR_QUANT8_ASYMM_SIGNED",
)
_PAIRS = {_FLOAT: _HALF, _HALF: _FLOAT, _QUANT: _SIGNED, _SIGNED: _QUANT}

OPERANDS = (TestOperand(_FLOAT), TestOperand(_HALF), TestOperand(_QUANT, scale=0.5), TestOperand(_SIGNED, scale=0.5))


def conv_case(operand: TestOperand, count: int = 1) -> Case:
    """Return CONV(Z, count)."""
    graph = CaseGraph()
    for _ in range(count):
        data = graph.input(operand.type, operand.shape, operand.scale, operand.zero_point)
        weights = [[[[0] * CHANNELS] * 3] * 3] * CHANNELS
        filter_ = graph.constant(operand.type, weights, 1.0 if operand.is_quantized else 0.0, operand.zero_point)
        bias = graph.constant("TENSOR_INT32" if operand.is_quantized else operand.type, [0] * CHANNELS, operand.scale)
        scalars = graph.int32s(1, 1, 1, 0)
        output = graph.output(operand.type, operand.shape, operand.scale, operand.zero_point)
        graph.apply("CONV_2D", [data, filter_, bias, *scalars], [output])
    return _model(graph)


def add_case(operand: TestOperand) -> Case:
    """Return ADD(Z)."""
    graph = CaseGraph()
    inputs = [graph.input(operand.type, operand.shape, operand.scale, operand.zero_point) for _ in range(2)]
    inputs.append(graph.input("INT32"))
    graph.apply("ADD", inputs, [graph.output(operand.type, operand.shape, operand.scale, operand.zero_point)])
    return _model(graph)


def _model(graph: CaseGraph) -> Case:
    """Return a case with a model only."""
    return Case({"relaxed": False, "model": {"main": graph.as_json(), "referenced": []}})


@dataclass(frozen=True)
class BenchArgument:
    """Argument in memory of the client, or in a buffer.

    Attributes:
        size: the size in bytes, in memory of the client.
        dimensions: the dimensions in the request.
        token: the token of the buffer, or an invalid token; None for memory of the client.
    """

    size: int = 0
    dimensions: Sequence[int] = ()
    token: int | None = None


class BufferBench:
    """Objects that a check creates on the device. Use it as a context manager, which releases them."""

    def __init__(self, target: Target, recorder: CheckRecorder, operand: TestOperand) -> None:
        self.target, self.recorder, self.operand = target, recorder, operand
        self._stack = ExitStack()

    def __enter__(self) -> "BufferBench":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self, case: Case) -> bytes:
        """Prepare a model and return its handle.

        Raises:
            Skipped: X1, which is X11 in this suite.
        """
        model = self.target.upload_large_pools(case.model())
        self._stack.callback(self.target.release_pools, model.pools)
        handle = query_and_prepare(self.target, model, self.recorder).model
        self._stack.callback(self.target.release, handle)
        return handle

    def allocate(
        self,
        models: Sequence[bytes],
        inputs: Roles = (),
        outputs: Roles = (),
        dimensions: Sequence[int] = (),
    ) -> AllocatedBuffer:
        """Allocate a buffer (MEMDOM-25). Raise Skipped for X3 if the device allocates none for these roles."""
        allocated = allocated_buffer(self.target, self.recorder, models, inputs, outputs, dimensions, check="MEMDOM-25")
        return self._stack.enter_context(allocated)

    def initialize(self, buffer: AllocatedBuffer, dimensions: Sequence[int] = ()) -> None:
        """Initialize a buffer with a copy (MEMDOM-35, or -36 with dimensions)."""
        answer = copy_from(self.target, buffer, types_pb2.Memory(inline=bytes(self.operand.size)), dimensions)
        self.recorder.expect_status(answer, "copyFrom", check="MEMDOM-36" if dimensions else "MEMDOM-35")

    def execute(
        self, path: str, model: bytes, inputs: Sequence[BenchArgument], outputs: Sequence[BenchArgument]
    ) -> ExecutionOutcome:
        """Execute a model on a path, and check MEMDOM-68 and -69."""
        execution = CALLS[path](self.target, model, make_request(inputs, outputs), RunOptions())
        check_steps(self.recorder, execution, "MEMDOM-69")
        self.recorder.mark("MEMDOM-69")
        unmeasured = execution.timing == (-1, -1)
        self.recorder.expect(
            unmeasured, f"{path} without measureTiming", "timing (-1, -1)", execution.timing, check="MEMDOM-68"
        )
        return execution


def make_request(inputs: Sequence[BenchArgument], outputs: Sequence[BenchArgument]) -> types_pb2.Request:
    """Return a request with its inputs in pool 0, its outputs in pool 1, and one pool for each buffer.

    Arguments in the same buffer share its pool.
    """
    request = types_pb2.Request()
    sizes = [sum(argument.size for argument in arguments) for arguments in (inputs, outputs)]
    request.pools.add().pool.inline = bytes(max(sizes[0], 1))
    request.pools.add().returned.size = max(sizes[1], 1)
    pools: dict[int, int] = {}
    for number, (arguments, messages) in enumerate(((inputs, request.inputs), (outputs, request.outputs))):
        offset = 0
        for argument in arguments:
            message = messages.add(dimensions=argument.dimensions)
            if argument.token is None:
                location = message.location
                location.pool_index, location.offset, location.length = number, offset, argument.size
                offset += argument.size
                continue
            if argument.token not in pools:
                pools[argument.token] = len(request.pools)
                request.pools.add().token = argument.token
            place_in_pool(message, pools[argument.token])
    return request


Body = Callable[[BufferBench], None]


def buffer_check(id_: str, operands: Sequence[TestOperand] = OPERANDS) -> Callable[[Body], Body]:
    """Register a check of buffers, once for each test operand."""

    def register(body: Body) -> Body:
        for operand in operands:

            def run(target: Target, recorder: CheckRecorder, operand: TestOperand = operand) -> None:
                with BufferBench(target, recorder, operand) as bench:
                    body(bench)

            check(id_, operand.type)(run)
        return body

    return register


def expect_status(bench: BufferBench, check_: str, stimulus: str, status: ErrorStatus, answer: CallOutcome) -> None:
    """Expect a call to end with a status."""
    bench.recorder.expect_status(answer, f"{stimulus} ({bench.operand.type})", status, check=check_)
