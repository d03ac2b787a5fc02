"""Example of a Python backend for a device with memory and a queue of its own; a thread stands in for the device.

It runs element-wise operations of TENSOR_FLOAT32. Values stay in the memory of the device between its partitions, and
executions return when their work is queued.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from nnhal_backend.v1 import (
    API_VERSION,
    AnyArray,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    DeviceBuffer,
    DeviceMemory,
    OperandType,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
    operation_name,
)
from nnhal_backend.v1 import OperationType as Op

Job = Callable[[], None]

KERNELS: dict[int, np.ufunc] = {
    Op.ABS: np.absolute,
    Op.NEG: np.negative,
    Op.MAXIMUM: np.maximum,
    Op.MINIMUM: np.minimum,
}


class Buffer:
    """A value in the memory of the device. Only jobs of the device touch `data`."""

    def __init__(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        self.shape, self.dtype = shape, dtype
        self.data: AnyArray = np.empty(shape, dtype)


class Fence:
    """End of all jobs that were queued before it."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: Exception | None = None

    def signal(self, error: Exception | None) -> None:
        """End the waits."""
        self._error = error
        self._done.set()

    def wait(self) -> None:
        """Wait for the jobs. Raises what the first failed one raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error


class SimulatedDevice(DeviceMemory):
    """The device: a thread that does jobs in order, and its memory. The thread runs while there are jobs."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._queued = 0

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put(job)
        with self._lock:
            self._queued += 1
            starts = self._queued == 1
        if starts:
            threading.Thread(target=self._work, name="example-queue", daemon=True).start()

    def run(self, jobs: Sequence[Job]) -> Fence:
        """Queue jobs. The fence ends with the last one, or tells the error of the first that fails."""
        fence = Fence()

        def work() -> None:
            try:
                for job in jobs:
                    job()
            except Exception as error:
                fence.signal(error)
            else:
                fence.signal(None)

        self.submit(work)
        return fence

    def acquire(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Buffer:
        """Return memory of the device."""
        return Buffer(shape, dtype)

    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        """Copy in the order of the queue. An array may change after this call, so only buffers are copied later."""
        done = self.run([lambda: np.copyto(_data(target), _data(source))])
        if not (isinstance(source, Buffer) and isinstance(target, Buffer)):
            done.wait()

    def upload(self, array: AnyArray) -> Buffer:
        """Return a buffer with the value of an array."""
        buffer = self.acquire(array.shape, array.dtype)
        self.copy(array, buffer)
        return buffer

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._queued -= 1
                if not self._queued:
                    return


def _data(value: AnyArray | DeviceBuffer) -> AnyArray:
    if isinstance(value, Buffer):
        return value.data
    assert isinstance(value, np.ndarray)
    return value


class Queue(Backend):
    """The backend."""

    id = "ExampleQueue"
    version = "1"

    def __init__(self) -> None:
        self.device = SimulatedDevice()

    def supports(self, operation: OperationView) -> Support:
        """Support element-wise operations on tensors of one known shape."""
        if operation.type not in KERNELS:
            return Support(f"the device has no {operation_name(operation.type)}")
        arguments = [*operation.operation.inputs, *operation.operation.outputs]
        operands = [operation.graph.operands[o] for o in arguments]
        if any(operand.type != OperandType.TENSOR_FLOAT32 for operand in operands):
            return Support("only TENSOR_FLOAT32 is supported")
        shape = operands[0].dimensions
        if not shape or 0 in shape or any(operand.dimensions != shape for operand in operands):
            return Support("only tensors of one known shape are supported")
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Copy the constants to the device."""
        return _Program(self.device, subgraph)


class _Program(CompiledSubgraph):
    """Operations that become jobs of the device."""

    def __init__(self, device: SimulatedDevice, subgraph: SubgraphView) -> None:
        self.device_operands = dict.fromkeys((*subgraph.inputs, *subgraph.outputs), device)
        self._device = device
        self._subgraph = subgraph
        used = {o for view in subgraph.operations for o in view.operation.inputs}
        constants = subgraph.graph.constants
        self._constants = {o: device.upload(constants[o]) for o in used if o in constants}

    def execute(self, inputs: Sequence[Any], outputs: Sequence[Output], run: Run) -> None:
        """Queue the operations. The outputs are buffers, which later partitions on this device can use at once."""
        graph = self._subgraph.graph
        buffers: dict[int, Buffer] = {**self._constants, **dict(zip(self._subgraph.inputs, inputs, strict=True))}
        jobs: list[Job] = [run.check]
        for view in self._subgraph.operations:
            (target,) = view.operation.outputs
            buffers[target] = self._device.acquire(graph.operands[target].dimensions, np.dtype(np.float32))
            sources = [buffers[o] for o in view.operation.inputs]
            jobs.append(_job(KERNELS[view.type], sources, buffers[target]))
        run.defer(self._device.run(jobs).wait)
        for operand, output in zip(self._subgraph.outputs, outputs, strict=True):
            output.write(buffers[operand], keep=True)


def _job(kernel: np.ufunc, sources: Sequence[Buffer], target: Buffer) -> Job:
    return lambda: kernel(*(source.data for source in sources), out=target.data)


def GetBackendId() -> str:
    """Return the id of the backend."""
    return Queue.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface that the backend was written for."""
    return API_VERSION


def BackendFactory() -> Backend:
    """Create a backend; called once for each device."""
    return Queue()
