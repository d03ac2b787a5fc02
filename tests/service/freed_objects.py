"""Objects of sessions are freed: tests that count them in the process, which `test_leaks` runs in one of its own."""

import gc
from typing import NoReturn

import numpy as np
import pytest

import nnhal
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.server import Server
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor

UNKNOWN = tensor(T.TENSOR_FLOAT32, (0,))
ADD = model_of(Op.ADD, [(UNKNOWN, 0), (UNKNOWN, 0), int32(0)], [UNKNOWN], constants=False)


def count_objects() -> dict[str, int]:
    gc.collect()
    objects = gc.get_objects()
    return {kind.__name__: sum(type(t) is kind for t in objects) for kind in (Session, PreparedModel, MemoryObject)}


def wait_for_counts(expected: dict[str, int]) -> dict[str, int]:
    wait_until(lambda: count_objects() == expected)
    return count_objects()


def test_session_frees_its_objects() -> None:
    before = count_objects()
    with Server(Settings(listen=("127.0.0.1:0",), session_grace_s=0.05)) as server:
        devices = [nnhal.connect(server.addresses[0]) for _ in range(3)]
        for device in devices:
            prepared = device.prepare(ADD).result(10)
            big = np.ones(1_000_000, np.float32)
            np.testing.assert_array_equal(prepared.execute([big, big])[0], 2 * big)
        assert count_objects()["PreparedModel"] >= before["PreparedModel"] + 3
        devices[0].close()
        devices[1]._connection._channel.close()
        devices[2].close()
        del prepared, device
        devices.clear()
        assert wait_for_counts(before) == before
    assert count_objects() == before


def test_released_model_is_freed_at_once() -> None:
    before = count_objects()
    with Server(Settings(listen=("127.0.0.1:0",))) as server, nnhal.connect(server.addresses[0]) as device:
        for _ in range(5):
            device.prepare(ADD).result(10).close()
        device.prepare(ADD).result(10)
        _ = device.version
        assert (
            wait_for_counts(before | {"Session": before["Session"] + 1})["PreparedModel"] <= before["PreparedModel"] + 1
        )


def test_failed_preparation_gives_its_memory_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a service that has many failures must not be full until the garbage collector runs."""

    def fail(*_: object) -> NoReturn:
        raise MemoryError("none")

    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        device.prepare(ADD).result(10).close()
        _ = device.version
        gc.collect()
        gc.disable()
        try:
            assert wait_until(lambda: server.quota.total == 0)
            assert device.prepare(ADD, deadline=1e-9).exception(10)
            monkeypatch.setattr(CpuRef, "compile", fail)
            assert device.prepare(ADD).exception(10)
            assert wait_until(lambda: server.quota.total == 0)
        finally:
            gc.enable()
