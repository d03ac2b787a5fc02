"""Lateness of random large operations with short deadlines: when do their calls end, and does a worker die?

`python -m tests.benchmark.deadlines [COUNT] [SEED]` starts a service for each backend, by default with 100 operations
of random sizes. A second client executes a small model all the time. It prints how long after its deadline the call of
each kind of operation ended, and the figures of the second client. The outputs stay in buffers of the device, because
results of 100 MiB in time would take longer than the rest of the call.
"""

import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import nnhal
from nnhal.types import DTYPES, AnyArray, Operand
from nnhal.types import OperationType as Op
from tests.benchmark import estimates
from tests.driver.one_operation import Value
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.service.supervisor.hostile_service import VALUES, relu_model

DEADLINE_S = 0.05
_LARGE_BYTES = 2**12
"""Inputs from this size on are computed by the model, so that a client sends few bytes."""


def model_of(type_: Op, inputs: Sequence[Value], outputs: Sequence[Operand]) -> nnhal.Model:
    """Return a model of one operation, whose large inputs are tiles of one input element each."""
    b = nnhal.ModelBuilder()
    arguments: list[Any] = []
    for operand, value in inputs:
        array = np.asarray(value, DTYPES[operand.type])
        if array.nbytes < _LARGE_BYTES:
            arguments.append(b.constant(array, operand.type, scale=operand.scale, zero_point=operand.zero_point))
            continue
        one = b.input(operand.type, (1,) * array.ndim, scale=operand.scale, zero_point=operand.zero_point)
        arguments.append(b.add(Op.TILE, one, np.array(array.shape, np.int32), output=operand))
    for result in b.add(type_, *arguments, outputs=list(outputs)):
        b.output(result)
    return b.build()


def ones(model: nnhal.Model) -> list[AnyArray]:
    """Return the inputs of such a model, which are small."""
    operands = [model.main.operands[index] for index in model.main.input_indexes]
    return [np.ones(operand.dimensions, DTYPES[operand.type]) for operand in operands]


@dataclass
class Bystander:
    """Client that executes a small model all the time. Use it as a context manager."""

    target: str
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def _run(self) -> None:
        with nnhal.connect(self.target, transport="grpc") as device, device.prepare(relu_model()).result(60) as model:
            while not self._stopped.wait(0.02):
                start = time.perf_counter()
                try:
                    np.testing.assert_array_equal(model.execute([VALUES])[0], VALUES)
                except nnhal.HalError as error:
                    self.failures.append(str(error))
                self.seconds.append(time.perf_counter() - start)

    def __enter__(self) -> "Bystander":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def run(service: Service, count: int) -> dict[str, list[float]]:
    """Execute random operations. Return the seconds after the deadline at which the calls ended, by operation."""
    late = defaultdict(list)
    names = list(estimates.CASES)
    with nnhal.connect(service.target, transport="grpc") as device:
        for _ in range(count):
            name = names[estimates.RANDOM.integers(len(names))]
            model = model_of(*estimates.CASES[name]())
            try:
                prepared = device.prepare(model, cache=False).result(60)
            except nnhal.HalError as error:
                print(f"{name}: not prepared: {error}", flush=True)
                continue
            buffers = [device.allocate(outputs=[(prepared, position)]) for position in range(len(prepared.outputs))]
            elements, start = ones(model), time.perf_counter()
            try:
                prepared.execute(elements, outputs=buffers, deadline=DEADLINE_S)
            except nnhal.HalError as error:
                if not error.status.name.startswith("MISSED_DEADLINE"):
                    print(f"{name}: {error}", flush=True)
            late[name].append(time.perf_counter() - start - DEADLINE_S)
            for closeable in (*buffers, prepared):
                closeable.close()
    return late


def main() -> None:
    """Print a line for each kind of operation, and for the bystander."""
    count, seed = [int(text) for text in sys.argv[1:]] + [100, 0][len(sys.argv) - 1 :]
    for backends in ("CpuRef", "CpuAcc,CpuRef"):
        estimates.RANDOM = np.random.default_rng(seed)
        with TemporaryDirectory() as folder:
            service = start_service(Path(folder), "--backends", backends)
            with Bystander(service.target) as bystander:
                late = run(service, count)
            died = service.log.read_text().count("worker-died")
            stop_service(service)
        for name, seconds in sorted(late.items(), key=lambda item: -max(item[1])):
            print(f"{name:30} {len(seconds):4d} calls, at most {max(seconds) * 1e3:6.0f} ms after the deadline")
        p99 = statistics.quantiles(bystander.seconds, n=100)[98] * 1e3
        calls = f"{len(bystander.seconds)} calls of another client, p99 {p99:.0f} ms, {len(bystander.failures)} failed"
        worst = max(max(seconds) for seconds in late.values()) * 1e3
        print(f"{backends}: at most {worst:.0f} ms late; {died} workers died; {calls}", flush=True)


if __name__ == "__main__":
    main()
