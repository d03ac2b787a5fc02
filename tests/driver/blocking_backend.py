"""Backend whose executions block until the test releases them, and requests over memory of the test's own."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from nnhal.types import (
    OMITTED,
    AnyArray,
    DataLocation,
    ExecutionConfig,
    Memory,
    PrepareModelConfig,
    Request,
    RequestArgument,
    RequestMemoryPool,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, Output, Run, SubgraphView
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.scheduler import QueueLimits
from tests.concurrency import new_threads
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import int32, model_of, tensor

X = tensor(T.TENSOR_FLOAT32, (2,))
TWICE = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
"""Model with two inputs of two floats each, and their sum."""

TIMEOUT_S = 60
"""Generous timeout for an event that must come; the machine may be busy."""

_PLAIN = ExecutionConfig()


def until(condition: Callable[[], bool]) -> bool:
    """Poll a condition. Return False if it does not hold within the timeout."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@dataclass
class Barrier:
    """Barrier that executions of a `BlockingBackend` wait at.

    Attributes:
        go: set by the test to release the executions.
        started: the first value of the first input of each execution, in order.
    """

    go: threading.Event = field(default_factory=threading.Event)
    started: list[float] = field(default_factory=list)

    def wait(self, inputs: Sequence[AnyArray | None], run: Run) -> None:
        """Block an execution before it computes."""
        assert inputs[0] is not None
        self.started.append(float(inputs[0].flat[0]))
        while not self.go.wait(0.001):
            run.check()


class _BlockingSubgraph(CompiledSubgraph):
    def __init__(self, compiled: CompiledSubgraph, barrier: Barrier) -> None:
        self._compiled = compiled
        self._barrier = barrier

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self._barrier.wait(inputs, run)
        self._compiled.execute(inputs, outputs, run)


class BlockingBackend(CpuRef):
    """CpuRef whose executions wait at a barrier."""

    id = "Blocking"

    def __init__(self, barrier: Barrier) -> None:
        super().__init__()
        self._barrier = barrier

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _BlockingSubgraph(super().compile(subgraph, options), self._barrier)


@dataclass(frozen=True)
class BlockingDevice:
    """Device whose executions block, and the model TWICE prepared on it."""

    device: Device
    barrier: Barrier
    prepared: PreparedModel

    @property
    def admission(self) -> AdmissionQueue:
        """The admission queue of the device."""
        return self.device._scheduler.admission

    def fenced(
        self,
        request: Request,
        wait_for: Sequence[Fence] = (),
        config: ExecutionConfig = _PLAIN,
        deadline_ns: int = OMITTED,
        duration_ns: int = OMITTED,
    ) -> FencedExecution:
        """Launch a fenced execution."""
        arguments = FencedArguments(tuple(wait_for), duration_ns, ExecutionCall(deadline_ns))
        return self.prepared.execute_fenced(request, config, arguments)


@contextmanager
def blocking_device(cpus: int = 1, queue: int = 100) -> Iterator[BlockingDevice]:
    """Yield a device that runs one execution for each CPU. Check that its threads have ended in the end."""
    before = threading.enumerate()
    barrier = Barrier()
    with patch("nnhal_driver.device.available_cpus", lambda: cpus):
        device = Device("blocking", [BlockingBackend(barrier)], DeviceOptions(QueueLimits(10, queue)))
    try:
        prepared: list[PreparedModel] = []
        launch_preparation(device, TWICE, lambda outcome: prepared.append(outcome.prepared_model), PrepareModelConfig())  # type: ignore[arg-type]
        assert until(lambda: bool(prepared))
        yield BlockingDevice(device, barrier, prepared[0])
    finally:
        barrier.go.set()
        device.close()
    assert not new_threads(before)


@dataclass(frozen=True)
class Sum:
    """Request for a + b, in memory that is read and written in place."""

    a: AnyArray
    b: AnyArray
    out: AnyArray

    @staticmethod
    def of(a: float, b: float = 0) -> "Sum":
        """Return a request with inputs filled with one value each."""
        return Sum(np.full(2, a, np.float32), np.full(2, b, np.float32), np.full(2, np.nan, np.float32))

    @property
    def request(self) -> Request:
        """The request."""
        pools = tuple(Memory.of(array, writable=True) for array in (self.a, self.b, self.out))
        return request_over(pools)


def request_over(pools: Sequence[RequestMemoryPool]) -> Request:
    """Return a request of TWICE over three pools: two inputs and the output."""
    first, second, out = (RequestArgument(False, DataLocation(i, 0, 8)) for i in range(3))
    return Request((first, second), (out,), tuple(pools))
