"""Attacks by executions that cannot end in time: large operations in small models, with short deadlines."""

import threading
import time
from collections import Counter

import nnhal
from tests.benchmark import estimates
from tests.benchmark.attacks.attack import attack
from tests.benchmark.deadlines import model_of, ones

_DEADLINE_S = 0.02
_PAUSE_S = 0.1


@attack("late executions")
def late_executions(target: str, end: float) -> str:
    """Execute large operations from one client, each in a model of its own."""
    return _attack(target, end, 1)


@attack("late executions of ten clients")
def late_executions_of_ten_clients(target: str, end: float) -> str:
    """Execute large operations from ten clients, each in a model of its own."""
    return _attack(target, end, 10)


def _attack(target: str, end: float, clients: int) -> str:
    names, lock = list(estimates.CASES), threading.Lock()
    results: Counter[str] = Counter()

    def run() -> None:
        while time.monotonic() < end:
            with lock:  # the cases share one generator of random sizes
                model = model_of(*estimates.CASES[names[estimates.RANDOM.integers(len(names))]]())
            results[_execute(target, model, end)] += 1
            time.sleep(_PAUSE_S)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ", ".join(f"{count} {name}" for name, count in results.most_common())


def _execute(target: str, model: nnhal.Model, end: float) -> str:
    """Execute a model once in a session of its own. Return the status."""
    try:
        with nnhal.connect(target, transport="grpc", timeout=max(1.0, end - time.monotonic())) as device:
            device.prepare(model, cache=False).result(60).execute(ones(model), deadline=_DEADLINE_S)
    except nnhal.HalError as error:
        return error.status.name
    except TimeoutError:
        return "timeout"
    return "OK"
