"""Client process of a load test: `python -m nnhal_tools.bench.client_process`.

The first line of its input is a `ClientTask` as JSON. It answers "ready" when it has prepared the model, and "failed
REASON" if it cannot. Each further line describes a run, whose result goes into a file. It ends with its input.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from nnhal.errors import HalError
from nnhal_tools.bench.paths import PATHS, Call
from nnhal_tools.bench.specification import ClientTask

MEASURED_EVERY = 16
"""Every so many calls, the service measures its own time."""


@dataclass(frozen=True)
class ClientRun:
    """Parameters of a run of a client.

    Attributes:
        warmup_s: seconds of calls that do not count.
        duration_s: seconds of calls that count.
        rate: calls per second of this client; 0 for a closed loop.
        file: .npz file for the result.
    """

    warmup_s: float
    duration_s: float
    rate: float
    seed: int
    file: str

    def to_json(self) -> str:
        """Return the run as JSON."""
        return json.dumps(asdict(self))


def _arrivals(run: ClientRun, start: float) -> Iterator[float]:
    """Yield the times at which calls arrive, at random with the rate of a run; the current time in a closed loop."""
    generator, at = random.Random(run.seed), start
    while True:
        at = at + generator.expovariate(run.rate) if run.rate else time.perf_counter()
        yield at


def measure(call: Call, run: ClientRun) -> dict[str, object]:
    """Make the calls of a run.

    A latency counts from the arrival of its call. In an open loop a call that cannot begin in time waits for the ones
    before it, as its user would.

    Returns:
        latencies in seconds; latencies, device times and driver times of the calls that the service has measured; the
        numbers of errors; seconds of wall time and of processor time.
    """
    latencies: list[float] = []
    measured: list[tuple[float, float, float]] = []
    errors: Counter[str] = Counter()
    start = time.perf_counter()
    begin, end = start + run.warmup_s, start + run.warmup_s + run.duration_s
    counted_from = cpu_from = 0.0
    finished = start
    for number, arrival in enumerate(_arrivals(run, start)):
        if arrival >= end or finished >= end:
            break
        if (delay := arrival - time.perf_counter()) > 0:
            time.sleep(delay)
        if not counted_from and arrival >= begin:
            counted_from, cpu_from = time.perf_counter(), time.process_time()
        is_measured = number % MEASURED_EVERY == 0
        try:
            timing = call(is_measured)
        except HalError as error:
            errors[error.reason] += 1
            timing = None
        else:
            latency = time.perf_counter() - arrival
            if counted_from:
                latencies.append(latency)
                if timing is not None:
                    measured.append((latency, timing.time_on_device_ns / 1e9, timing.time_in_driver_ns / 1e9))
        finished = time.perf_counter()
    return {
        "latencies": np.array(latencies),
        "measured": np.array(measured).reshape(-1, 3),
        "errors": json.dumps(errors),
        "elapsed_s": finished - counted_from if counted_from else 0.0,
        "processor_s": time.process_time() - cpu_from if counted_from else 0.0,
    }


def main() -> None:
    """Serve the parent until the end of the input."""
    task = ClientTask.from_json(sys.stdin.readline())
    with np.load(task.inputs) as file:
        arrays = [file[f"arr_{i}"] for i in range(len(file.files))]
    try:
        with PATHS[task.subject.path](task, arrays) as call:
            call(False)
            print("ready", flush=True)
            for line in sys.stdin:
                run = ClientRun(**json.loads(line))
                np.savez(run.file, **measure(call, run))  # type: ignore[arg-type]
                print("done", flush=True)
    except (HalError, ValueError, OSError) as error:
        print(f"failed {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
