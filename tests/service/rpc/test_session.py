"""Sessions: what a client learns when it opens or resumes one."""

from pathlib import Path

from nnhal.v1 import session_pb2
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.end_to_end.support.raw_client import open_raw_session


def test_secret_of_the_data_socket_is_sent_once(tmp_path: Path) -> None:
    """The token goes with every call; who learns it must not be able to use the data socket."""
    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), cache_dir=tmp_path / "cache")
    with Server(settings) as server, open_raw_session(server.addresses[0]) as raw:
        assert len(raw.opened.data_secret) == 16
        events = raw.sessions.Open(session_pb2.OpenRequest(session=raw.session), timeout=60)
        resumed = next(iter(events)).opened
        events.cancel()
    assert (resumed.session, resumed.data_secret) == (raw.session, b"")
