"""A program that prepares and saves models as the service does, without end: it is to be killed.

python -m tests.service.saving_model DIRECTORY. The parent, which has loaded everything, forks a writer for each line
that it reads; each says its process when it begins.
"""

import os
import queue
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cache.key import make_key
from cache.store import Store
from driver.backends import registry
from driver.device import Device, Outcome
from nnhal import ModelBuilder
from nnhal.types import AnyArray, CacheState, ErrorStatus, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from service.kept_models import KeptModels
from service.sessions import ANONYMOUS, Session
from tests.driver.one_operation import execute

SIZE = 100_000
TOKENS = 2
BYTES = 64 * 2**20


def weights(number: int) -> AnyArray:
    """The constants of a model; each token has its own."""
    return np.random.default_rng(number).random(SIZE, np.float32)


def model(number: int) -> Model:
    """Adds constants to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [SIZE])
    b.output(b.add(Op.ADD, x, weights(number), 0, output=Operand(T.TENSOR_FLOAT32, (SIZE,))))
    return b.build()


def stored(number: int) -> types_pb2.CompilationCache:
    """What a request says."""
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes([number]) * 32)


@contextmanager
def opened(root: Path) -> Iterator[tuple[Device, KeptModels, Session]]:
    """What of a service saves and loads."""
    device = Device("test", registry.create(["CpuRef"]), cache_key=make_key(root))
    try:
        yield device, KeptModels(Store(root, BYTES)), Session("test", ANONYMOUS)
    finally:
        device.close()


def save(device: Device, kept: KeptModels, session: Session, number: int) -> Outcome:
    """Prepares a model and saves it, as DeviceServicer does."""
    told: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    saving = kept.saving(device, session, stored(number))
    device.prepare_model(model(number), saving.settled(told.put), cache=saving.files)
    return told.get(timeout=60)


def is_absent_or_right(device: Device, kept: KeptModels, session: Session, number: int) -> bool:
    """Whether there is an entry; it computes right.

    Raises:
        AssertionError: it does not, or is damaged.
    """
    told: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    with kept.found(session, stored(number)) as found:
        device.prepare_model_from_cache(told.put, found.files)
    outcome = told.get(timeout=60)
    if outcome.prepared_model is None:
        assert outcome.cache.state == CacheState.MISS and "no entry" in outcome.cache.reason, outcome.reason
        return False
    assert outcome.status == ErrorStatus.NONE
    (answer,) = execute(outcome, [np.zeros(SIZE, np.float32)])[1]
    np.testing.assert_array_equal(answer, weights(number))
    return True


def write(root: Path) -> None:
    """Saves, without end; says so."""
    with opened(root) as service:
        print(os.getpid(), flush=True)
        number = 0
        while True:
            assert save(*service, number % TOKENS).cache.state == CacheState.SAVED
            number += 1


def main(root: Path) -> None:
    """Forks writers. Nobody waits for them but the kernel."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        if os.fork() == 0:
            try:
                write(root)
            finally:
                os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
