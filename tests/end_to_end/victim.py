"""A service that is treated badly, while a good client uses it; and what must be true of it afterwards."""

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
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.processes import Holdings, memory, settled, thread_names

ADDRESS_SPACE = 4 * 2**30
"""What the victim may map: far below what the bombs ask for, and what a machine for tests has."""

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
    """Executes all the while, and prepares anew now and then."""

    target: str
    failures: list[BaseException] = field(default_factory=list)
    rounds: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; every answer was right, and there was one until the end."""
        before = self.rounds
        end = time.monotonic() + 30
        while self.rounds < before + 2 and not self.failures and time.monotonic() < end:
            time.sleep(0.05)
        self._over.set()
        self._thread.join(60)
        assert self.failures == []
        assert self.rounds >= before + 2, "the good client got no more answers"

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                with nnhal.connect(self.target, timeout=60) as device, device.prepare(_ADD).result(60) as prepared:
                    for _ in range(50):
                        use(prepared, self.rounds)
                        self.rounds += 1
                        if self._over.wait(0.05):
                            break
        except BaseException as error:
            self.failures.append(error)


def use(prepared: "nnhal.PreparedModel", seed: int) -> None:
    """One execution whose answer is held."""
    a, b = np.random.default_rng(seed).standard_normal((2, 5)).astype(np.float32)
    np.testing.assert_array_equal(prepared.execute([a, b])[0], a + b)


@contextmanager
def victim(folder: Path, *options: str) -> Iterator[Service]:
    """A service with little memory and a good client. At the end it must be as it was, and have logged no stack."""
    service = start(folder, *options, **SETTINGS)
    pid = service.process.pid
    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        _warm_up(service.target)
        before, resident = settled(pid), memory(pid, "VmRSS")
        good = GoodClient(service.target)
        yield service
        good.stop()
        assert service.process.poll() is None
        _wait_for(before, pid)
        grown = memory(pid, "VmRSS") - resident
        print(f"\nthe service grew by {grown / 2**20:.0f} MiB, its peak was {memory(pid, 'VmHWM') / 2**20:.0f} MiB")
        assert grown < 2**29
        assert not service.logged("Traceback"), service.log.read_text()
        assert not service.logged("internal error"), service.log.read_text()
    finally:
        assert stop(service) == 0


def _warm_up(target: str) -> None:
    """Lets the service make what it makes once: several clients, large tensors, all at the same time."""
    clients = [threading.Thread(target=_one_round, args=(target,)) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def _one_round(target: str) -> None:
    with nnhal.connect(target, timeout=60) as device, device.prepare(_ADD).result(60) as prepared:
        large = np.ones(1_000_000, np.float32)
        np.testing.assert_array_equal(prepared.execute([large, large])[0], 2 * large)


def _wait_for(wanted: Holdings, pid: int) -> None:
    """Descriptors and threads are no more than they were, a little later."""
    end = time.monotonic() + 20
    while True:
        now = Holdings.of(pid)
        if now.descriptors <= wanted.descriptors and now.threads <= wanted.threads:
            return
        assert time.monotonic() < end, f"the service holds {now}, {thread_names(pid)}; before it were {wanted}"
        time.sleep(0.2)
