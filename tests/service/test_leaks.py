"""What sessions owned is really freed: counted object by object, in process."""

import gc
import time

import numpy as np

import nnhal
from driver.prepared_model import PreparedModel
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from service.memory import MemoryObject
from service.server import Server
from service.sessions import Session
from service.settings import Settings
from tests.driver.one_operation import int32, model_of, tensor

UNKNOWN = tensor(T.TENSOR_FLOAT32, (0,))
ADD = model_of(Op.ADD, [(UNKNOWN, 0), (UNKNOWN, 0), int32(0)], [UNKNOWN], constants=False)


def alive() -> dict[str, int]:
    gc.collect()
    things = gc.get_objects()
    return {kind.__name__: sum(type(t) is kind for t in things) for kind in (Session, PreparedModel, MemoryObject)}


def settle(expected: dict[str, int]) -> dict[str, int]:
    end = time.monotonic() + 5
    while (now := alive()) != expected and time.monotonic() < end:
        time.sleep(0.05)
    return now


def test_everything_goes_with_its_session() -> None:
    before = alive()
    with Server(Settings(listen=("127.0.0.1:0",), session_grace_s=0.05)) as server:
        devices = [nnhal.connect(server.addresses[0]) for _ in range(3)]
        for device in devices:
            prepared = device.prepare(ADD).result(10)
            big = np.ones(1_000_000, np.float32)
            np.testing.assert_array_equal(prepared.execute([big, big])[0], 2 * big)
        assert alive()["PreparedModel"] >= before["PreparedModel"] + 3
        devices[0].close()
        devices[1]._connection._channel.close()
        devices[2].close()
        del prepared, device
        devices.clear()
        assert settle(before) == before
    assert alive() == before


def test_a_released_model_is_freed_at_once() -> None:
    before = alive()
    with Server(Settings(listen=("127.0.0.1:0",))) as server, nnhal.connect(server.addresses[0]) as device:
        for _ in range(5):
            device.prepare(ADD).result(10).close()
        device.prepare(ADD).result(10)
        _ = device.version
        assert settle(before | {"Session": before["Session"] + 1})["PreparedModel"] <= before["PreparedModel"] + 1
