"""A backend whose executions wait until the test lets them go; and requests over memory of the test's own."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from driver.backends.api import CompiledSubgraph, CompileOptions, Output, Run, SubgraphView
from driver.backends.reference.backend import CpuRef
from driver.device import Device
from driver.fence import Fence
from driver.fenced import FencedExecution, FencedLaunch
from driver.prepared_model import PreparedModel
from driver.scheduler import Queues
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
from tests.driver.one_operation import int32, model_of, tensor

X = tensor(T.TENSOR_FLOAT32, (2,))
TWICE = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
"""Two inputs of two floats each, and their sum."""


_PLAIN = ExecutionConfig()


def until(condition: Callable[[], bool]) -> bool:
    """Waits for a condition, at most 10 s."""
    end = time.monotonic() + 10
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@dataclass
class Hold:
    """What executions of a `Held` backend wait for. `started`: their first inputs' first values, in order."""

    go: threading.Event = field(default_factory=threading.Event)
    started: list[float] = field(default_factory=list)

    def wait(self, inputs: Sequence[AnyArray | None], run: Run) -> None:
        """Called by each execution, before it computes."""
        assert inputs[0] is not None
        self.started.append(float(inputs[0].flat[0]))
        while not self.go.wait(0.001):
            run.check()


class _HeldSubgraph(CompiledSubgraph):
    def __init__(self, compiled: CompiledSubgraph, hold: Hold) -> None:
        self._compiled = compiled
        self._hold = hold

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self._hold.wait(inputs, run)
        self._compiled.execute(inputs, outputs, run)


class Held(CpuRef):
    """CpuRef, held."""

    id = "Held"

    def __init__(self, hold: Hold) -> None:
        super().__init__()
        self._hold = hold

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _HeldSubgraph(super().compile(subgraph, options), self._hold)


@dataclass(frozen=True)
class Bench:
    """A device with one place to run, and a model on it."""

    device: Device
    hold: Hold
    prepared: PreparedModel

    def fenced(
        self,
        request: Request,
        wait_for: Sequence[Fence] = (),
        config: ExecutionConfig = _PLAIN,
        deadline_ns: int = OMITTED,
        duration_ns: int = OMITTED,
    ) -> FencedExecution:
        """Launches a fenced execution."""
        return self.prepared.execute_fenced(request, config, FencedLaunch(tuple(wait_for), deadline_ns, duration_ns))


@contextmanager
def bench(width: int = 1, queue: int = 100) -> Iterator[Bench]:
    """A held device; nothing of it is left at the end."""
    before = threading.active_count()
    hold = Hold()
    device = Device("held", [Held(hold)], Queues(10, queue))
    try:
        device._scheduler.gate._free = width
        device._scheduler.workers._limit = width
        done: list[PreparedModel] = []
        device.prepare_model(TWICE, lambda outcome: done.append(outcome.prepared_model), PrepareModelConfig())  # type: ignore[arg-type]
        assert until(lambda: bool(done))
        yield Bench(device, hold, done[0])
    finally:
        hold.go.set()
        device.close()
    assert threading.active_count() == before


@dataclass(frozen=True)
class Sum:
    """A request for a + b, all in memory of its own that is read and written in place."""

    a: AnyArray
    b: AnyArray
    out: AnyArray

    @staticmethod
    def of(a: float, b: float = 0) -> "Sum":
        """Inputs that are filled with a value each."""
        return Sum(np.full(2, a, np.float32), np.full(2, b, np.float32), np.full(2, np.nan, np.float32))

    @property
    def request(self) -> Request:
        """The request."""
        pools = tuple(Memory.of(array, writable=True) for array in (self.a, self.b, self.out))
        return request_over(pools)


def request_over(pools: Sequence[RequestMemoryPool]) -> Request:
    """A request of TWICE over three pools: two inputs and the output."""
    first, second, out = (RequestArgument(False, DataLocation(i, 0, 8)) for i in range(3))
    return Request((first, second), (out,), tuple(pools))
