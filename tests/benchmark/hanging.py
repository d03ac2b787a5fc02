"""Clients beside a backend that hangs: `python -m tests.benchmark.hanging [SECONDS]`.

A service has a plug-in and CpuRef, and another device with CpuRef alone. For each method of the plug-in, the clients of
the other device prepare and execute small models for some seconds, alone and while the method hangs. It prints the 99th
percentiles, and the time after which a client of the plug-in has its result from CpuRef. The limit on an answer of a
backend is 0.5 s.
"""

import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import nnhal
from tests.end_to_end.backends import hostile_plugin as plugin
from tests.end_to_end.support.service_process import Service, start_service, stop_service

METHODS = ("before_load_network", "supports", "optimize", "before_load", "compile", "after_load", "execute")
LIMIT_S = 0.5


@dataclass
class Durations:
    """Durations of the calls of a client, in seconds."""

    executions: list[float] = field(default_factory=list)
    preparations: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        p99 = (statistics.quantiles(each, n=100)[98] * 1e3 for each in (self.executions, self.preparations))
        return "executions {:6.1f} ms, preparations {:6.1f} ms".format(*p99)


def measure(call: Callable[[], object], durations: list[float]) -> None:
    """Add the duration of a call."""
    start = time.perf_counter()
    call()
    durations.append(time.perf_counter() - start)


def work(service: Service, seconds: float) -> Durations:
    """Prepare and execute models on the other device."""
    durations, end = Durations(), time.monotonic() + seconds
    with nnhal.connect(service.target, device="second", transport="grpc") as device:
        while time.monotonic() < end:
            prepared: list[nnhal.PreparedModel] = []
            measure(
                lambda: prepared.append(device.prepare(plugin.model(), cache=False).result(60)),  # noqa: B023
                durations.preparations,
            )
            for _ in range(10):
                measure(lambda: prepared[0].execute([plugin.VALUES]), durations.executions)  # noqa: B023
            prepared[0].close()
    return durations


def fall_back(service: Service, behavior: Path, method: str) -> float:
    """Let a method hang, and return the seconds after which a client has its result from CpuRef."""
    waiting = behavior.with_suffix(".waiting")
    waiting.unlink(missing_ok=True)
    plugin.behave(behavior, f"{method} wait")
    with nnhal.connect(service.target) as device:
        start = time.perf_counter()
        while not _computes(device):
            pass
        return time.perf_counter() - start


def _computes(device: nnhal.Device) -> bool:
    """Return whether CpuRef has the result. An execution that hangs ends with an error, and the next one falls back."""
    try:
        return plugin.run(device) == plugin.COMPUTED
    except nnhal.HalError:
        return False


def trial(service: Service, behavior: Path, method: str, seconds: float) -> str:
    """Return what the clients measured while a method hangs."""
    seconds_of_fallback: list[float] = []
    client = threading.Thread(target=lambda: seconds_of_fallback.append(fall_back(service, behavior, method)))
    client.start()
    durations = work(service, seconds)
    client.join()
    plugin.behave(behavior, "")
    with nnhal.connect(service.target) as device:
        while plugin.run(device) != plugin.COPIED:
            time.sleep(0.05)
    return f"{durations}; a client of the plug-in falls back after {seconds_of_fallback[0]:.2f} s"


def main() -> None:
    """Print a line for each method."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else 5.0
    with TemporaryDirectory() as folder:
        behavior = Path(folder, "behavior")
        behavior.write_text("")
        service = start_service(
            Path(folder),
            NNHAL_DYNAMIC_BACKENDS_PATH=str(plugin.FOLDER),
            NNHAL_BACKENDS="Hostile,CpuRef",
            NNHAL_DEVICES='["first", "second=CpuRef"]',
            NNHAL_BACKEND_TIMEOUT_S=str(LIMIT_S),
            HOSTILE_FILE=str(behavior),
            NNHAL_SANDBOX_PATHS=folder,
        )
        work(service, 1)
        print(f"{'alone':20} {work(service, seconds)}", flush=True)
        for method in METHODS:
            print(f"{method:20} {trial(service, behavior, method, seconds)}", flush=True)
        stop_service(service)


if __name__ == "__main__":
    main()
