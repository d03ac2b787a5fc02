"""Values in a backend's own memory, between its partitions and to and from the host."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.errors import HalError
from nnhal.types import (
    AnyArray,
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    Memory,
    Model,
    Operand,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompiledSubgraph, Output, Run, SubgraphView
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory
from nnhal_driver.backends.layout import Layout, Relayout
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.execution.buffer import Buffer as DriverBuffer
from nnhal_driver.execution.prepared_model import PreparedModel
from tests.concurrency import TIMEOUT_S
from tests.driver.asynchronous_device import Asynchronous, Queue, device_failure
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.driver.fake_backend import parts
from tests.driver.one_operation import execute, execute_profiled, prepare

X = np.array([1, -2], np.float32)
FLOATS = Operand(T.TENSOR_FLOAT32, (2,))


class Buffer:
    """Value in the memory of a device. It is stored negated, so that no other backend can use it by mistake."""

    def __init__(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        self.shape, self.dtype = shape, dtype
        self.stored: AnyArray = np.full(shape, 99, dtype)


class Recorder(DeviceMemory):
    """Memory of a device with a queue.

    Attributes:
        copies: the direction of each copy.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.copies: list[str] = []
        self.keeps = False

    def keep(self, buffer: DeviceBuffer) -> bool:
        return self.keeps

    def take_copies(self) -> list[str]:
        """Return the copies since the last call."""
        copies, self.copies = self.copies, []
        return copies

    def acquire(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Buffer:
        return Buffer(shape, dtype)

    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        if isinstance(source, Buffer) and isinstance(target, Buffer):
            self.copies.append("within")
            self.queue.submit(lambda: np.copyto(target.stored, source.stored))()
        elif isinstance(source, Buffer):
            assert isinstance(target, np.ndarray) and target.flags.c_contiguous
            self.copies.append("out")
            self.queue.submit(lambda: np.negative(source.stored, out=target))()
        else:
            assert isinstance(target, Buffer) and isinstance(source, np.ndarray)
            self.copies.append("in")
            self.queue.submit(lambda: np.negative(source, out=target.stored))()


class OnDevice(CompiledSubgraph):
    """Adds one to its input for each operation, in memory of the device."""

    keep = True
    asynchronous = True

    def __init__(self, backend: "Accelerator", subgraph: SubgraphView) -> None:
        self.backend, self.subgraph = backend, subgraph
        self.device_operands = dict.fromkeys((*subgraph.inputs, *subgraph.outputs), backend.memory)

    def execute(self, inputs: Sequence[Any], outputs: Sequence[Output], run: Run) -> None:
        buffers: dict[int, Any] = dict(zip(self.subgraph.inputs, inputs, strict=True))
        jobs = []
        for view in self.subgraph.operations:
            source = buffers[view.operation.inputs[0]]
            assert isinstance(source, Buffer)
            target = buffers[view.operation.outputs[0]] = self.backend.memory.acquire(source.shape, source.dtype)
            jobs.append((source, target))

        def work() -> None:
            if self.backend.failure is not None:
                raise self.backend.failure
            for source, target in jobs:
                np.subtract(source.stored, np.float32(1), out=target.stored)

        wait = self.backend.queue.submit(work)
        if self.asynchronous:
            run.defer(wait)
        else:
            wait()
        for operand, output in zip(self.subgraph.outputs, outputs, strict=True):
            output.write(buffers[operand], keep=self.keep)


class Accelerator(Asynchronous):
    """Backend of a device with memory of its own."""

    id = "Accelerator"

    def __init__(self, queue: Queue, takes: Sequence[int], make: type[CompiledSubgraph] = OnDevice) -> None:
        super().__init__(queue, takes, make)
        self.memory = Recorder(queue)


@contextmanager
def unmerged(*backends: Backend) -> Iterator[Device]:
    """Yield a device with small partitions."""
    device = Device("test", backends, DeviceOptions(merge_partitions=False))
    yield device
    device.close()


@pytest.fixture
def queue() -> Iterator[Queue]:
    queue = Queue()
    yield queue
    queue.close()


def branches() -> Model:
    """Return x -> RELU -> ABS and x -> RELU -> RELU, where ABS depends on a value that only another backend gives."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    first = b.add(Op.RELU, x, output=FLOATS)
    negated = b.add(Op.NEG, first, output=FLOATS)
    second = b.add(Op.RELU, first, output=FLOATS)
    total = b.add(Op.ADD, negated, second, 0, output=FLOATS)
    b.output(b.add(Op.RELU, total, output=FLOATS))
    return b.build()


def chain(*types: int, outputs: Sequence[int] = (-1,)) -> Model:
    b = ModelBuilder()
    values = [b.input(T.TENSOR_FLOAT32, [2])]
    for type_ in types:
        values.append(b.add(type_, values[-1], output=FLOATS))
    for number in outputs:
        b.output(values[number])
    return b.build()


@pytest.mark.parametrize("synchronous", [False, True])
def test_values_cross_the_border_once(queue: Queue, synchronous: bool) -> None:
    make = type("Synchronous", (OnDevice,), {"asynchronous": False}) if synchronous else OnDevice
    backend = Accelerator(queue, [Op.RELU], make)
    with unmerged(backend, CpuRef()) as device:
        (result,) = execute(prepare(branches(), device), [X])[1]
    np.testing.assert_array_equal(result, -(X + 1) + (X + 2) + 1)
    # x into the device; the first value out for NEG, the second for ADD; the sum in, the result out
    assert sorted(backend.memory.copies) == ["in", "in", "out", "out", "out"]


def two_devices(queue: Queue) -> tuple[Accelerator, Accelerator]:
    first, second = Accelerator(queue, [Op.RELU]), Accelerator(queue, [Op.RELU1])
    second.id = "Second"
    return first, second


def test_partitions_with_the_same_memory_need_no_copy_and_no_wait(queue: Queue) -> None:
    first, second = two_devices(queue)
    second.memory = first.memory
    with unmerged(first, second) as device, ThreadPoolExecutor(1) as pool:
        outcome = prepare(chain(Op.RELU, Op.RELU1, Op.RELU), device)
        assert parts(outcome.placement) == [("Accelerator", (0,)), ("Second", (1,)), ("Accelerator", (2,))]
        queue.gate.clear()
        running = pool.submit(execute, outcome, [X])
        try:
            assert queue.submitted.acquire(timeout=TIMEOUT_S)  # the copy of the input, which waits for the device
        finally:
            queue.gate.set()
        np.testing.assert_array_equal(running.result(TIMEOUT_S)[1][0], X + 3)
    assert first.memory.copies == ["in", "out"]


def test_later_partitions_start_before_earlier_ones_are_done(queue: Queue) -> None:
    class Patient(Recorder):
        def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
            if isinstance(target, Buffer):  # into the device, without a job
                np.negative(np.asarray(source), out=target.stored)
                self.copies.append("in")
            else:
                super().copy(source, target)

    first, second = two_devices(queue)
    first.memory = second.memory = Patient(queue)
    with unmerged(first, second) as device, ThreadPoolExecutor(1) as pool:
        outcome = prepare(chain(Op.RELU, Op.RELU1, Op.RELU), device)
        queue.gate.clear()
        running = pool.submit(execute, outcome, [X])
        try:
            for _ in range(3):  # all three are queued while the device stands still
                assert queue.submitted.acquire(timeout=TIMEOUT_S)
            assert queue.waiting.acquire(timeout=TIMEOUT_S)
            assert not running.done()
        finally:
            queue.gate.set()
        np.testing.assert_array_equal(running.result(TIMEOUT_S)[1][0], X + 3)
    assert first.memory.copies == ["in", "out"]


def test_other_memory_gets_a_copy_by_way_of_the_host(queue: Queue) -> None:
    first, second = two_devices(queue)
    with unmerged(first, second) as device:
        (result,) = execute(prepare(chain(Op.RELU, Op.RELU1), device), [X])[1]
    np.testing.assert_array_equal(result, X + 2)
    assert (first.memory.copies, second.memory.copies) == (["in", "out"], ["in", "out"])


def test_buffers_that_change_are_copied_within_the_memory(queue: Queue) -> None:
    backend = Accelerator(queue, [Op.RELU], type("Reusing", (OnDevice,), {"keep": False}))
    with unmerged(backend) as device:
        (result,) = execute(prepare(chain(Op.RELU), device), [X])[1]
    np.testing.assert_array_equal(result, X + 1)
    assert backend.memory.copies == ["in", "within", "out"]


def test_outputs_of_the_model_can_be_read_by_later_partitions(queue: Queue) -> None:
    backend = Accelerator(queue, [Op.RELU])
    with unmerged(backend, CpuRef()) as device:
        outcome = prepare(chain(Op.RELU, Op.ABS, Op.RELU, outputs=(1, 3)), device)
        first, last = execute(outcome, [X])[1]
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(last, np.abs(X + 1) + 1)
    assert backend.memory.copies == ["in", "out", "in", "out"]


def test_failures_of_the_device_come_before_those_of_readers(queue: Queue) -> None:
    backend = Accelerator(queue, [Op.RELU])
    with unmerged(backend, CpuRef()) as device:
        outcome = prepare(chain(Op.RELU, Op.ABS), device)
        backend.failure = device_failure()
        with pytest.raises(HalError, match="the device failed"):
            execute(outcome, [X])
    assert "out" not in backend.memory.copies


def test_loops_and_profiles(queue: Queue) -> None:
    with unmerged(Accelerator(queue, [Op.ADD]), CpuRef()) as device:
        assert execute(prepare(loop(less_than(), counts()), device), [f(1), f(5)])[1][0].tolist() == [5]
    with unmerged(Accelerator(queue, [Op.RELU]), CpuRef()) as device:
        assert execute_profiled(prepare(chain(Op.RELU, Op.ABS), device), [X]).spans


def allocate(device: Device, first: PreparedModel, second: PreparedModel) -> DriverBuffer:
    """Return a buffer for the output of one model and the input of another."""
    return device.allocate(BufferDesc(), (first, second), (BufferRole(1, 0),), (BufferRole(0, 0),))


def run_into(model: PreparedModel, source: Memory | BufferToken, target: RequestMemoryPool) -> AnyArray | None:
    """Run a model from one pool into another. Return the output if it is returned."""
    sizes = [8 if isinstance(pool, Memory) else 0 for pool in (source, target)]
    given, wanted = (RequestArgument(False, DataLocation(number, 0, size)) for number, size in enumerate(sizes))
    (data,) = model.execute_synchronously(Request((given,), (wanted,), (source, target))).returned or (None,)
    return None if data is None else data.view(np.float32)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_values_of_buffers_stay_if_the_memory_keeps_them(queue: Queue, keeps: bool, asynchronous: bool) -> None:
    backend = Accelerator(queue, [Op.RELU], type("Kind", (OnDevice,), {"asynchronous": asynchronous}))
    memory = backend.memory
    memory.keeps = keeps
    with unmerged(backend, CpuRef()) as device:
        on_device, on_host = (prepare(chain(type_), device).prepared_model for type_ in (Op.RELU, Op.ABS))
        assert on_device is not None and on_host is not None
        between = allocate(device, on_device, on_device)
        run_into(on_device, Memory.of(X), BufferToken(between.token))
        assert memory.take_copies() == (["in"] if keeps else ["in", "out"])
        np.testing.assert_array_equal(run_into(on_device, BufferToken(between.token), ReturnedPool()), X + 2)
        assert memory.take_copies() == (["out"] if keeps else ["in", "out"])
        target = Memory.of(bytearray(8), writable=True)
        between.copy_to(target)
        for data in (between.read(), between.read(), target.view):
            np.testing.assert_array_equal(data.view(np.float32), X + 1)
        assert memory.take_copies() == (["out"] * 3 if keeps else [])
        for_host = allocate(device, on_device, on_host)
        run_into(on_device, Memory.of(X), BufferToken(for_host.token))
        np.testing.assert_array_equal(run_into(on_host, BufferToken(for_host.token), ReturnedPool()), np.abs(X + 1))
        assert memory.take_copies() == ["in", "out"]


@pytest.mark.parametrize(("offset", "is_direct"), [(0, True), (4, True), (2, False)])
def test_outputs_are_copied_into_their_region_if_it_is_aligned(queue: Queue, offset: int, is_direct: bool) -> None:
    backend = Accelerator(queue, [Op.RELU])
    targets: list[AnyArray] = []
    copy = backend.memory.copy

    def recorded(source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        if isinstance(target, np.ndarray):
            targets.append(target)
        copy(source, target)

    backend.memory.copy = recorded  # type: ignore[method-assign]
    with unmerged(backend) as device:
        model = prepare(chain(Op.RELU), device).prepared_model
        assert model is not None and model.plan.copies_inputs == OnDevice.copies_inputs
        region = np.zeros(4, np.float32)
        given, wanted = (RequestArgument(False, DataLocation(i, (0, offset)[i], 8)) for i in (0, 1))
        pools = (Memory.of(X), Memory.of(region, writable=True))
        assert model.execute_synchronously(Request((given,), (wanted,), pools)).output_sufficient_size
        np.testing.assert_array_equal(region.view(np.uint8)[offset : offset + 8].view(np.float32), X + 1)
        assert np.shares_memory(targets[0], region) == is_direct


def test_failure_of_the_device_leaves_a_buffer_uninitialized(queue: Queue) -> None:
    backend = Accelerator(queue, [Op.RELU])
    backend.memory.keeps = True
    with unmerged(backend) as device:
        model = prepare(chain(Op.RELU), device).prepared_model
        assert model is not None
        buffer = allocate(device, model, model)
        run_into(model, Memory.of(X), BufferToken(buffer.token))
        backend.failure = device_failure()
        with pytest.raises(HalError, match="the device failed"):
            run_into(model, Memory.of(X), BufferToken(buffer.token))
        with pytest.raises(HalError, match="uninitialized"):
            buffer.read()


class _Invalid(OnDevice):
    def execute(self, inputs: Sequence[Any], outputs: Sequence[Output], run: Run) -> None:
        outputs[0].write(self.result(inputs[0]))

    def result(self, source: Buffer) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda source: source.stored, "is an array; expected a buffer"),
        (lambda source: Buffer((3,), source.dtype), r"has shape \[3\]; declared is \[2\]"),
        (lambda source: Buffer((2,), np.dtype(np.int32)), "has dtype int32; expected float32"),
        (lambda source: "nothing", "which has no shape"),
    ],
)
def test_invalid_buffers_fail_the_execution(queue: Queue, result: Any, reason: str) -> None:
    make = type("Invalid", (_Invalid,), {"result": staticmethod(result)})
    with unmerged(Accelerator(queue, [Op.RELU], make)) as device:
        outcome = prepare(chain(Op.RELU), device)
        with pytest.raises(HalError, match=reason):
            execute(outcome, [X])


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"device_operands": [1]}, "expected a mapping"),
        ({"device_operands": {99: None}}, "expected an input or output"),
        ({"device_operands": {0: "memory"}}, "expected a DeviceMemory"),
    ],
)
def test_invalid_declarations_fail_the_compilation(queue: Queue, attributes: dict[str, Any], reason: str) -> None:
    class Declaring(OnDevice):
        def __init__(self, backend: Accelerator, subgraph: SubgraphView) -> None:
            super().__init__(backend, subgraph)
            vars(self).update(attributes)

    with unmerged(Accelerator(queue, [Op.RELU], Declaring)) as device:
        assert reason in prepare(chain(Op.RELU), device).reason


def test_operands_have_a_layout_or_a_memory(queue: Queue) -> None:
    class Both(OnDevice):
        def __init__(self, backend: Accelerator, subgraph: SubgraphView) -> None:
            super().__init__(backend, subgraph)
            self.layouts = {subgraph.inputs[0]: Relayout(Layout.NHWC, Layout.NCHW)}

    with unmerged(Accelerator(queue, [Op.RELU], Both)) as device:
        assert "its memory may have any layout" in prepare(chain(Op.RELU), device).reason


@pytest.mark.parametrize("error", [ValueError("no such address"), SystemExit(3)])
def test_exceptions_of_copies_fail_the_execution(queue: Queue, error: BaseException) -> None:
    backend = Accelerator(queue, [Op.RELU])

    def copy(source: object, target: object) -> None:
        raise error

    with unmerged(backend) as device:
        outcome = prepare(chain(Op.RELU), device)
        backend.memory.copy = copy  # type: ignore[method-assign]
        with pytest.raises(HalError, match=f"backend Accelerator failed in copy: {type(error).__name__}"):
            execute(outcome, [X])
