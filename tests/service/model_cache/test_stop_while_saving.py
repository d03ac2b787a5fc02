"""A service that is stopped while it saves, and finds things in its cache that it has not written, ends in time."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import pytest

from nnhal import ModelBuilder
from nnhal.types import Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import device_pb2, types_pb2
from nnhal.wire import model_message
from nnhal_cache.key import load_or_create_key
from nnhal_cache.store import Store
from nnhal_cache.verify import verify_entries
from tests.concurrency import wait_until
from tests.end_to_end.support.raw_client import open_raw_session, prepare_request
from tests.end_to_end.support.service_process import start_service, stop_service

TOKENS, SAVED = 4, 6
ELEMENTS = 200_000


def adding(number: int) -> Model:
    """Return a model whose entry takes some time to write."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [ELEMENTS])
    b.output(b.add(Op.ADD, x, np.full(ELEMENTS, number, np.float32), 0, output=x.description))
    return b.build()


def plant(root: Path) -> None:
    """Put pipes in the place of the files of one entry, and files with the names of generations beside it."""
    store = Store(root, 2**30)
    (link, *_) = store.layout.links()
    for name in ("model", "data"):
        with suppress(FileNotFoundError, FileExistsError):
            (Path(link.path) / name).unlink()
            os.mkfifo(Path(link.path) / name)
    for number in range(8):
        (store.layout.generations / f"{number:032x}").touch()
    os.mkfifo(store.layout.generations / f"{9:032x}")


@pytest.mark.slow
def test_stop_while_entries_are_saved_and_planted(tmp_path: Path) -> None:
    service = start_service(tmp_path, NNHAL_STOP_GRACE_S="5")
    root, saved = tmp_path / "cache", 0

    def save(client: int) -> None:
        nonlocal saved
        with suppress(grpc.RpcError), open_raw_session(service.target) as raw:
            for number in range(10_000):
                request = prepare_request(raw, model_message(adding(2 * number + client)))
                request.cache.form = types_pb2.CACHE_FORM_STORED
                request.cache.token = bytes([number % TOKENS]) * 32
                *_, event = raw.device.PrepareModel(request)
                saved += event.notify.cache.state == device_pb2.CACHE_STATE_SAVED

    clients = [threading.Thread(target=save, args=(client,)) for client in range(2)]
    try:
        for thread in clients:
            thread.start()
        assert wait_until(lambda: saved >= SAVED, 60)
        plant(root)
        before = saved
        assert wait_until(lambda: saved > before, 60)
    finally:
        assert stop_service(service) == 0, service.log.read_text()
        for thread in clients:
            thread.join(60)
    problems = [entry.problems for entry in verify_entries(Store(root, 2**30), load_or_create_key(root))]
    # entries are intact, or have a planted pipe, which shows before anything reads it
    assert all(not found or "is not a file" in " ".join(found) for found in problems), problems
    assert not service.logged("Traceback"), service.log.read_text()
