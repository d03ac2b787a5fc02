"""Models, buffers and requests for checks of buffers (checklist 9), and where those checks register.

The test operand Z has one of four types and the shape [1, 32, 32, 8]. CONV(Z, k) is k independent CONV_2D operations,
ADD(Z) one ADD whose activation is an input.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from nnhal.types import DTYPES, OperandType
from nnhal.v1 import types_pb2
from tools.conformance.builtin.writer import Graph
from tools.conformance.check import Judge, Skipped
from tools.conformance.gate import prepared_model
from tools.conformance.paths import CALLS, judge_steps
from tools.conformance.paths.buffers import DeviceBuffer, allocate, copy_from, is_allocated, place
from tools.conformance.registry import check
from tools.conformance.target import Answer, Executed, Run, Target
from tools.conformance.vectors import Case

SHAPE = (1, 32, 32, 8)
CHANNELS = SHAPE[-1]

EXECUTORS = ("SYNC", "BURST", "FENCED")


@dataclass(frozen=True)
class Operand:
    """The test operand."""

    type: str
    shape: tuple[int, ...] = SHAPE
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_quantised(self) -> bool:
        """Whether it has a scale."""
        return self.scale != 0

    @property
    def size(self) -> int:
        """Bytes of the shape [1, 32, 32, 8] in its type."""
        count = 1
        for length in SHAPE:
            count *= length
        return count * DTYPES[OperandType[self.type]].itemsize

    @property
    def other_type(self) -> "Operand":
        """The same with the other type of its pair."""
        return replace(self, type=_PAIRS[self.type])

    @property
    def open(self) -> "Operand":
        """The same with dimension 0 unknown."""
        return replace(self, shape=(0, *self.shape[1:]))


_FLOAT, _HALF, _QUANT, _SIGNED = (
    "TENSOR_FLOAT32",
    "TENSOR_FLOAT16",
    "TENSOR_QUANT8_ASYMM",
    "TENSOR_QUANT8_ASYMM_SIGNED",
)
_PAIRS = {_FLOAT: _HALF, _HALF: _FLOAT, _QUANT: _SIGNED, _SIGNED: _QUANT}

OPERANDS = (Operand(_FLOAT), Operand(_HALF), Operand(_QUANT, scale=0.5), Operand(_SIGNED, scale=0.5))


def conv(z: Operand, count: int = 1) -> Case:
    """CONV(Z, count)."""
    graph = Graph()
    for _ in range(count):
        data = graph.input(z.type, z.shape, z.scale, z.zero_point)
        weights = [[[[0] * CHANNELS] * 3] * 3] * CHANNELS
        filter_ = graph.constant(z.type, weights, 1.0 if z.is_quantised else 0.0, z.zero_point)
        bias = graph.constant("TENSOR_INT32" if z.is_quantised else z.type, [0] * CHANNELS, z.scale)
        scalars = [graph.int32(value) for value in (1, 1, 1, 0)]
        output = graph.output(z.type, z.shape, z.scale, z.zero_point)
        graph.apply("CONV_2D", [data, filter_, bias, *scalars], [output])
    return _model(graph)


def add(z: Operand) -> Case:
    """ADD(Z)."""
    graph = Graph()
    inputs = [graph.input(z.type, z.shape, z.scale, z.zero_point) for _ in range(2)]
    inputs.append(graph.input("INT32"))
    graph.apply("ADD", inputs, [graph.output(z.type, z.shape, z.scale, z.zero_point)])
    return _model(graph)


def _model(graph: Graph) -> Case:
    """A case of which only the model is used."""
    return Case({"relaxed": False, "model": {"main": graph.as_json(), "referenced": []}})


@dataclass(frozen=True)
class Shared:
    """An argument in memory of the client: its bytes, and the dimensions that the request gives it."""

    size: int
    dimensions: Sequence[int] = ()


@dataclass(frozen=True)
class Held:
    """An argument in a buffer, or what is said to be one."""

    token: int
    dimensions: Sequence[int] = ()


Argument = Shared | Held


class Bench:
    """What one check makes on the device; dropped when it is closed.

    Attributes:
        z: the test operand.
    """

    def __init__(self, target: Target, judge: Judge, z: Operand) -> None:
        self.target, self.judge, self.z = target, judge, z
        self._stack = ExitStack()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepared(self, case: Case) -> bytes:
        """A prepared model.

        Raises:
            Skipped: X1, which here is X11.
        """
        model = self.target.own_pools(case.model())
        self._stack.callback(self.target.release_pools, model.pools)
        handle = prepared_model(self.target, model, self.judge).model
        self._stack.callback(self.target.release, handle)
        return handle

    def buffer(
        self,
        models: Sequence[bytes],
        inputs: Sequence[types_pb2.BufferRole] = (),
        outputs: Sequence[types_pb2.BufferRole] = (),
        dimensions: Sequence[int] = (),
    ) -> DeviceBuffer:
        """MEMDOM-25: a valid allocation.

        Raises:
            Skipped: X3.
        """
        answer, buffer = allocate(self.target, models, inputs, outputs, dimensions)
        what = "a buffer and a token, or GENERAL_FAILURE"
        got = f"{answer}, {buffer}"
        self.judge.expect("MEMDOM-25", is_allocated(answer, buffer), "a valid allocation", what, got)
        if buffer is None:
            raise Skipped("X3", str(answer))
        self._stack.callback(self.target.release, buffer.handle)
        return buffer

    def fill(self, buffer: DeviceBuffer, dimensions: Sequence[int] = ()) -> None:
        """Makes a buffer initialised."""
        answer = copy_from(self.target, buffer, types_pb2.Memory(inline=bytes(self.z.size)), dimensions)
        self.judge.expect("MEMDOM-36" if dimensions else "MEMDOM-35", answer.status == 0, "copyFrom", "NONE", answer)

    def execute(self, path: str, model: bytes, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Executed:
        """MEMDOM-68 and -69 hold on the way."""
        executed = CALLS[path](self.target, model, request_of(inputs, outputs), Run())
        judge_steps(self.judge, executed, "MEMDOM-69")
        self.judge.checks["MEMDOM-69"] = None
        unmeasured = executed.timing == (-1, -1)
        self.judge.expect("MEMDOM-68", unmeasured, f"{path}, not measured", "timing (-1, -1)", executed.timing)
        return executed


def request_of(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> types_pb2.Request:
    """Pool 0 for inputs, pool 1 for outputs, and one for each argument in a buffer; buffers that are one share it."""
    request = types_pb2.Request()
    sizes = [sum(one.size for one in arguments if isinstance(one, Shared)) for arguments in (inputs, outputs)]
    request.pools.add().pool.inline = bytes(max(sizes[0], 1))
    request.pools.add().returned.size = max(sizes[1], 1)
    pools: dict[int, int] = {}
    for number, (arguments, messages) in enumerate(((inputs, request.inputs), (outputs, request.outputs))):
        end = 0
        for one in arguments:
            message = messages.add(dimensions=one.dimensions)
            if isinstance(one, Shared):
                message.location.pool_index, message.location.offset, message.location.length = number, end, one.size
                end += one.size
                continue
            if one.token not in pools:
                pools[one.token] = len(request.pools)
                request.pools.add().token = one.token
            place(message, pools[one.token])
    return request


Body = Callable[[Bench], None]


def memdom(id_: str, operands: Sequence[Operand] = OPERANDS) -> Callable[[Body], Body]:
    """Registers a check of buffers, once for each test operand."""

    def register(body: Body) -> Body:
        for z in operands:

            def run(target: Target, judge: Judge, z: Operand = z) -> None:
                with Bench(target, judge, z) as bench:
                    body(bench)

            check(id_, z.type)(run)
        return body

    return register


def expect(bench: Bench, check_: str, what: str, status: int, answer: Answer) -> None:
    """A call must end so."""
    name = Answer(status)
    bench.judge.expect(check_, answer.status == status, f"{what} ({bench.z.type})", str(name), answer)
