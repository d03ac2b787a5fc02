"""Names that clients give their models, as operators see them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import nnhal
from nnhal.types import CacheState
from nnhal.v1 import device_pb2
from nnhal_service.operating.admin.worker_report import WorkerReporter
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.end_to_end.support.preparation_events import read_events
from tests.end_to_end.support.raw_client import add_chain, open_raw_session, prepare_request
from tests.nnhal.tflite.build import Op, Tensor, build


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("cache")
    with Server(Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), cache_dir=folder)) as server:
        yield server


def shown(server: Server) -> list[str]:
    """Return the names of the prepared models that operators see."""
    return [model.model_name for model in WorkerReporter(0, 0, server).report("serving", []).models]


def test_model_has_the_name_of_its_file(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "detector.v2.tflite"
    path.write_bytes(build(Op("RELU", [Tensor((1, 2))], [Tensor((1, 2))])))
    for state in (CacheState.SAVED, CacheState.HIT):
        with nnhal.connect(server.addresses[0]) as device, device.prepare(path, cache=True).result() as prepared:
            assert prepared.cache.state == state
            assert shown(server)[-1] == "detector.v2"
    assert [entry.name for entry in server.store.list()] == ["detector.v2"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("", ""),
        ("detector/3", "3"),  # a name with a slash is that of a model of the repository
        ("\x1b[31mred\r\n\u202e", "[31mred"),
        ("x" * 500, "x" * 100),
    ],
)
def test_names_are_plain(server: Server, name: str, plain: str) -> None:
    with open_raw_session(server.addresses[0]) as raw:
        request = prepare_request(raw, add_chain(1))
        request.model_name = name
        detailed = device_pb2.PrepareModelWithConfigRequest(session=raw.session, model=request.model, model_name=name)
        for call in (raw.device.PrepareModel(request), raw.device.PrepareModelWithConfig(detailed)):
            assert read_events(call)[1] is None
        assert shown(server)[-2:] == [plain] * 2  # after those of sessions that may be resumed


def test_name_of_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "\udce4.tflite"
    path.write_bytes(build(Op("RELU", [Tensor((1, 2))], [Tensor((1, 2))])))
    assert nnhal.tflite.load(path).name == "\N{REPLACEMENT CHARACTER}"
