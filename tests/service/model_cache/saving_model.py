"""Program that prepares and saves models as the service does, until it is killed.

python -m tests.service.model_cache.saving_model DIRECTORY. The parent loads all modules, then forks a writer for each
line that it reads. Each writer prints its process id when it starts.
"""

import os
import queue
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from nnhal import ModelBuilder
from nnhal.errors import HalError
from nnhal.types import AnyArray, CacheState, ErrorStatus, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from nnhal_cache.key import load_or_create_key
from nnhal_cache.store import Store
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.preparation.outcome import Outcome
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.model_cache.cache_arguments import CacheArguments, PendingSave
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.session import Session
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import execute

SIZE = 100_000
TOKENS = 2
BYTES = 64 * 2**20


def weights(number: int) -> AnyArray:
    """Return the constants of the model of a token."""
    return np.random.default_rng(number).random(SIZE, np.float32)


def model(number: int) -> Model:
    """Return a model that adds constants to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [SIZE])
    b.output(b.add(Op.ADD, x, weights(number), 0, output=Operand(T.TENSOR_FLOAT32, (SIZE,))))
    return b.build()


def stored_cache(number: int) -> types_pb2.CompilationCache:
    """Return the cache arguments of a token."""
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes([number]) * 32)


@contextmanager
def open_cache(root: Path) -> Iterator[tuple[Device, CacheArguments, Session]]:
    """Yield the parts of a service that save and load models."""
    device = Device("test", registry.create(["CpuRef"]), DeviceOptions(cache=CacheOptions(load_or_create_key(root))))
    try:
        yield device, CacheArguments(Store(root, BYTES), Limits()), Session("test", ANONYMOUS)
    finally:
        device.close()


def save(device: Device, arguments: CacheArguments, session: Session, number: int) -> Outcome:
    """Prepare and save a model, as DeviceServicer does."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    target = PendingSave(arguments, device, session)
    launch_preparation(device, model(number), target.committing(outcomes.put), cache=target.open(stored_cache(number)))
    return outcomes.get(timeout=60)


def has_valid_entry(device: Device, arguments: CacheArguments, session: Session, number: int) -> bool:
    """Return whether there is an entry, and check that its model computes the right values.

    Raises:
        AssertionError: the model computes other values, or the entry is damaged.
    """
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    # the outcome has the error of a launch
    with suppress(HalError), arguments.open_for_loading(device, session, stored_cache(number)) as source:
        device.prepare_model_from_cache(outcomes.put, source.files)
    outcome = outcomes.get(timeout=60)
    if outcome.prepared_model is None:
        assert outcome.cache.state == CacheState.MISS and "no entry" in outcome.cache.reason, outcome.reason
        return False
    assert outcome.status == ErrorStatus.NONE
    (output,) = execute(outcome, [np.zeros(SIZE, np.float32)])[1]
    np.testing.assert_array_equal(output, weights(number))
    return True


def write(root: Path) -> None:
    """Save models until the process is killed."""
    with open_cache(root) as service:
        print(os.getpid(), flush=True)
        number = 0
        while True:
            assert save(*service, number % TOKENS).cache.state == CacheState.SAVED
            number += 1


def main(root: Path) -> None:
    """Fork writers. The kernel reaps them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        if os.fork() == 0:
            try:
                write(root)
            finally:
                os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
