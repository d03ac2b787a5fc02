"""Cache shared by processes: an embedded service loads what another one saved; and the options of the cache."""

from contextlib import closing
from pathlib import Path

import pytest

from nnhal.embedded import EmbeddedService
from nnhal.v1 import device_pb2, types_pb2
from nnhal_cache.store import Store
from tests.cache.entries import token
from tests.end_to_end.support.preparation_events import read_events
from tests.end_to_end.support.raw_client import add_chain, open_raw_session, prepare_request
from tests.end_to_end.support.service_process import start_service, stop_service

STORED = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token(1))


def save(target: str) -> device_pb2.Notify:
    with open_raw_session(target) as raw:
        request = prepare_request(raw, add_chain(2))
        request.cache.CopyFrom(STORED)
        return list(raw.device.PrepareModel(request, timeout=60))[-1].notify


def load(target: str) -> device_pb2.Notify:
    with open_raw_session(target) as raw:
        request = device_pb2.PrepareModelFromCacheRequest(session=raw.session, cache=STORED)
        return read_events(raw.device.PrepareModelFromCache(request, timeout=60))[0][-1].notify


def test_embedded_services_share_the_cache_of_their_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with closing(EmbeddedService()) as service:
        assert load(service.target).cache.state == device_pb2.CACHE_STATE_MISS
        assert save(service.target).cache.state == device_pb2.CACHE_STATE_SAVED
    with closing(EmbeddedService()) as service:
        notify = load(service.target)
    assert (notify.status, notify.cache.state) == (0, device_pb2.CACHE_STATE_HIT)
    assert [entry.token for entry in Store(tmp_path / "nnhal", 2**20).list()] == [token(1)]


@pytest.mark.slow
def test_options_of_the_cache(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    where = ["--cache-dir", str(tmp_path / "cache"), "--cache-key-file", str(key)]
    for options, state in (
        ([*where, "--no-cache"], device_pb2.CACHE_STATE_NOT_SAVED),
        ([*where, "--cache-bytes", "10"], device_pb2.CACHE_STATE_NOT_SAVED),
        (where, device_pb2.CACHE_STATE_SAVED),
    ):
        service = start_service(tmp_path, *options, "--backends", "CpuRef")
        try:
            notify = save(service.target)
        finally:
            assert stop_service(service) == 0
        assert (notify.status, notify.cache.state) == (0, state), notify.cache.reason
        assert [warning.code for warning in notify.warnings] == ["cache-not-saved"] * (
            state != device_pb2.CACHE_STATE_SAVED
        )
    assert not (tmp_path / "cache" / "key").exists()
