"""A service under attack while a well-behaved client uses it, and the checks that must hold afterwards."""

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import nnhal
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.process_usage import ProcessUsage, settled_usage, status_bytes, thread_names
from tests.end_to_end.support.service_process import Service, start_service, stop_service

ADDRESS_SPACE = 4 * 2**30
"""Address space limit of the attacked service in bytes. Far below what the attacks request, and what a machine has."""

SETTINGS = {
    "NNHAL_THREADS": "64",
    "NNHAL_SESSION_GRACE_S": "0",
    "NNHAL_IDLE_THREAD_S": "0.3",
    "NNHAL_TRANSFER_IDLE_S": "2",
}

_X = tensor(T.TENSOR_FLOAT32, (0,))
_ADD = model_of(Op.ADD, [(_X, 0), (_X, 0), int32(0)], [_X], constants=False)


@dataclass
class GoodClient:
    """A client that executes all the time and prepares a new model now and then."""

    target: str
    failures: list[BaseException] = field(default_factory=list)
    rounds: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        """Stop the client. Assert that all results were right and that it was served until the end."""
        before = self.rounds
        end = time.monotonic() + 30
        while self.rounds < before + 2 and not self.failures and time.monotonic() < end:
            time.sleep(0.05)
        self._over.set()
        self._thread.join(60)
        assert self.failures == []
        assert self.rounds >= before + 2, "the good client was not served any more"

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                with nnhal.connect(self.target, timeout=60) as device, device.prepare(_ADD).result(60) as prepared:
                    for _ in range(50):
                        execute_and_check(prepared, self.rounds)
                        self.rounds += 1
                        if self._over.wait(0.05):
                            break
        except BaseException as error:
            self.failures.append(error)


def execute_and_check(prepared: "nnhal.PreparedModel", seed: int) -> None:
    """Execute once and check the result."""
    a, b = np.random.default_rng(seed).standard_normal((2, 5)).astype(np.float32)
    np.testing.assert_array_equal(prepared.execute([a, b])[0], a + b)


@contextmanager
def attacked_service(folder: Path, *options: str) -> Iterator[Service]:
    """Run a service with little memory and a good client.

    At the end, assert that it uses no more descriptors and threads than before, and that it logged no stack.
    """
    service = start_service(folder, *options, **SETTINGS)
    pid = service.pid
    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        _warm_up(service.target)
        before, resident = settled_usage(pid), status_bytes(pid, "VmRSS")
        good = GoodClient(service.target)
        yield service
        good.stop()
        assert service.process.poll() is None
        _wait_for_usage(before, pid)
        grown = status_bytes(pid, "VmRSS") - resident
        print(
            f"\nthe service grew by {grown / 2**20:.0f} MiB, its peak was {status_bytes(pid, 'VmHWM') / 2**20:.0f} MiB"
        )
        assert grown < 2**29
        assert not service.logged("Traceback"), service.log.read_text()
        assert not service.logged("internal error"), service.log.read_text()
    finally:
        assert stop_service(service) == 0


def _warm_up(target: str) -> None:
    """Have the service allocate everything that it allocates once: concurrent clients with large tensors."""
    clients = [threading.Thread(target=_one_round, args=(target,)) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def _one_round(target: str) -> None:
    with nnhal.connect(target, timeout=60) as device, device.prepare(_ADD).result(60) as prepared:
        large = np.ones(1_000_000, np.float32)
        np.testing.assert_array_equal(prepared.execute([large, large])[0], 2 * large)


def _wait_for_usage(limit: ProcessUsage, pid: int) -> None:
    """Wait until a process has no more descriptors and threads than `limit`."""
    end = time.monotonic() + 20
    while True:
        now = ProcessUsage.read(pid)
        if now.descriptors <= limit.descriptors and now.threads <= limit.threads:
            return
        assert time.monotonic() < end, f"the service has {now}, {thread_names(pid)}; expected at most {limit}"
        time.sleep(0.2)
