"""DEVICE_UNAVAILABLE: the answer of methods that need no session or model, when the device stops or has ended."""

import grpc
import pytest

from nnhal.client.core.rpc_errors import hal_error
from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, device_pb2_grpc, enums_pb2
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.end_to_end.support.preparation_events import kinds, read_events
from tests.end_to_end.support.raw_client import error_detail, open_raw_session

SETTINGS = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))


def test_device_that_stops_loads_nothing() -> None:
    with Server(SETTINGS) as server, open_raw_session(server.addresses[0]) as raw:
        server.sessions.drain()
        events, error = read_events(
            raw.device.PrepareModelFromCache(device_pb2.PrepareModelFromCacheRequest(session=raw.session))
        )
    assert kinds(events) == ["notify"]
    assert events[0].notify.status == enums_pb2.ERROR_STATUS_DEVICE_UNAVAILABLE
    assert error is not None and error_detail(error).status == enums_pb2.ERROR_STATUS_DEVICE_UNAVAILABLE


@pytest.mark.parametrize("method", ["GetNumberOfCacheFilesNeeded", "GetType", "GetVersionString", "GetCapabilities"])
def test_descriptions_of_a_device_that_has_ended(ended: str, method: str) -> None:
    with grpc.insecure_channel(ended) as channel, pytest.raises(grpc.RpcError) as caught:
        getattr(device_pb2_grpc.DeviceStub(channel), method)(device_pb2.DeviceRequest())
    assert hal_error(caught.value).status == ErrorStatus.DEVICE_UNAVAILABLE


@pytest.fixture(scope="module")
def ended() -> str:
    """Address of a service that has ended."""
    with Server(SETTINGS) as server:
        return server.addresses[0]
