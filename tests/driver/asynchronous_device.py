"""A backend whose device is a thread with a queue: executions return when their work is queued."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)


class Queue:
    """A device that runs jobs in order. It stands still while `gate` is not set.

    Attributes:
        gate: set while the device works.
        submitted: released for each job.
        waiting: released for each wait that begins.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.submitted = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def submit(self, job: Callable[[], object]) -> Callable[[], None]:
        """Queue a job. Return its wait, which raises what the job raises."""
        done = threading.Event()
        failures: list[Exception] = []

        def run() -> None:
            self.gate.wait()
            try:
                job()
            except Exception as error:
                failures.append(error)
            done.set()

        def wait() -> None:
            self.waiting.release()
            done.wait()
            if failures:
                raise failures[0]

        self._jobs.put(run)
        self.submitted.release()
        return wait

    def close(self) -> None:
        """Finish all jobs and end the thread."""
        self.gate.set()
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Asynchronous(Backend):
    """Runs some operation types on a queue. All of them add one, which tells it from other backends.

    Args:
        queue: the device.
        takes: the operation types.
        make: makes the compiled subgraph.

    Attributes:
        failure: raised by the device instead of writing outputs.
    """

    id = "Asynchronous"
    version = "1"

    def __init__(
        self, queue: Queue, takes: Sequence[int], make: "Callable[..., CompiledSubgraph] | None" = None
    ) -> None:
        self.queue, self.takes, self.make = queue, takes, make or Deferring
        self.failure: HalError | None = None

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.type in self.takes else Support("not mine")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return self.make(self, subgraph)


class Deferring(CompiledSubgraph):
    """Adds one to its input for each operation, on the device."""

    def __init__(self, backend: Asynchronous, subgraph: SubgraphView) -> None:
        self.backend, self.subgraph = backend, subgraph

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        (source,), count = inputs, len(self.subgraph.operations)
        assert source is not None

        def work() -> None:
            if self.backend.failure is not None:
                raise self.backend.failure
            for output in outputs:
                output.write(np.asarray(source + np.float32(count)), keep=True)

        run.defer(self.backend.queue.submit(work))


def device_failure() -> HalError:
    """Return an error of the device."""
    return general_failure("the device failed")
