"""Preparations with a cache over the contract: saved, found again by another service, and refused with a reason."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from cache.store import Store
from nnhal.v1 import cache_pb2, cache_pb2_grpc, device_pb2, enums_pb2, error_pb2, session_pb2, types_pb2
from service.server import Server
from service.settings import Settings
from tests.end_to_end.conftest import start, stop
from tests.end_to_end.raw import Raw, chain, detail, execute_request, prepare_request, raw_session
from tests.end_to_end.test_preparation_stream import Events, kinds, read

TOKEN = bytes(range(32))
STORED = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=TOKEN)
MODEL = chain(3)
INVALID = enums_pb2.ERROR_STATUS_INVALID_ARGUMENT

Serving = Callable[..., AbstractContextManager[Raw]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Runs services, one after the other, with the same cache directory and a session each."""

    @contextmanager
    def run(**changed: Any) -> Iterator[Raw]:
        settings = {"cache_dir": tmp_path / "cache", "backends": ("CpuRef",), **changed}
        with Server(Settings(listen=("127.0.0.1:0",), **settings)) as server, raw_session(server.addresses[0]) as raw:
            yield raw

    return run


def save(raw: Raw, cache: types_pb2.CompilationCache = STORED) -> device_pb2.Notify:
    """Prepares MODEL and saves it; the preparation succeeds whatever becomes of that."""
    request = prepare_request(raw, MODEL)
    request.cache.CopyFrom(cache)
    events, error = read(raw.device.PrepareModel(request, timeout=60))
    assert error is None and kinds(events) == ["launched", "notify"]
    notify = events[1].notify
    assert notify.status == enums_pb2.ERROR_STATUS_NONE, notify.reason
    runs(raw, notify)
    return notify


def load(
    raw: Raw, cache: types_pb2.CompilationCache = STORED, deadline_ns: int | None = None
) -> tuple[Events, grpc.RpcError | None]:
    """Asks for MODEL from the cache."""
    request = device_pb2.PrepareModelFromCacheRequest(session=raw.session, cache=cache, deadline_ns=deadline_ns)
    return read(raw.device.PrepareModelFromCache(request, timeout=60))


def hit(raw: Raw, cache: types_pb2.CompilationCache = STORED) -> device_pb2.Notify:
    """The same; it is there, and runs."""
    assert check(raw, cache).state == device_pb2.CACHE_STATE_HIT
    events, error = load(raw, cache)
    assert error is None and kinds(events) == ["launched", "notify"]
    notify = events[1].notify
    assert (notify.status, notify.cache.state, notify.cache.reason) == (0, device_pb2.CACHE_STATE_HIT, "")
    runs(raw, notify)
    return notify


def missed(raw: Raw, cache: types_pb2.CompilationCache = STORED) -> str:
    """The same; it is not there. Asking beforehand tells the same reason."""
    before = check(raw, cache)
    events, error = load(raw, cache)
    assert error is None and kinds(events) == ["launched", "notify"]
    notify = events[1].notify
    assert (notify.status, notify.prepared_model) == (enums_pb2.ERROR_STATUS_GENERAL_FAILURE, b"")
    assert notify.cache.state == device_pb2.CACHE_STATE_MISS
    assert notify.reason == f"cache miss: {notify.cache.reason}"
    assert before == notify.cache
    return notify.cache.reason


def check(raw: Raw, cache: types_pb2.CompilationCache) -> device_pb2.CacheOutcome:
    stub = cache_pb2_grpc.CacheStub(raw.channel)
    return stub.Check(cache_pb2.CheckCacheRequest(session=raw.session, cache=cache), timeout=60).outcome


def refused(raw: Raw, cache: types_pb2.CompilationCache, deadline_ns: int | None = None) -> error_pb2.ErrorDetail:
    """The launch fails: told by notify, and then by the call."""
    events, error = load(raw, cache, deadline_ns)
    assert error is not None and kinds(events) == ["notify"]
    found = detail(error)
    assert (events[0].notify.status, events[0].notify.reason) == (found.status, found.reason)
    return found


def runs(raw: Raw, notify: device_pb2.Notify) -> None:
    """The model adds 3 to its input."""
    request = execute_request(raw, notify.prepared_model, [np.array([1, 2], np.float32)])
    (output,) = raw.prepared_model.ExecuteSynchronously(request, timeout=60).returned
    assert np.frombuffer(output.inline, np.float32).tolist() == [4, 5]


def not_saved(notify: device_pb2.Notify) -> str:
    """Nothing was saved: why. It is a warning as well."""
    assert notify.cache.state == device_pb2.CACHE_STATE_NOT_SAVED
    assert [(w.code, w.text) for w in notify.warnings] == [("cache-not-saved", notify.cache.reason)]
    return notify.cache.reason


def generations(tmp_path: Path) -> list[Path]:
    """What writers made and nobody removed."""
    return list((tmp_path / "cache" / "generations").iterdir())


def test_a_model_outlives_its_service(serving: Serving) -> None:
    with serving() as raw:
        assert "no entry" in missed(raw)
        saved = save(raw)
        assert (saved.cache.state, list(saved.warnings)) == (device_pb2.CACHE_STATE_SAVED, [])
        hit(raw)
    with serving() as raw:
        loaded = hit(raw)
    assert loaded.placement == saved.placement
    assert (list(loaded.inputs), list(loaded.outputs)) == (list(saved.inputs), list(saved.outputs))
    assert len(loaded.inputs) == len(loaded.outputs) == 1


def test_asking_is_no_use(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        assert check(raw, STORED).state == device_pb2.CACHE_STATE_MISS
        save(raw)
        store = Store(tmp_path / "cache", 2**30)
        (before,) = store.list()
        for _ in range(2):
            assert check(raw, STORED).state == device_pb2.CACHE_STATE_HIT
        assert store.list() == [before]


def test_it_outlives_a_process(tmp_path: Path) -> None:
    for i in range(2):
        service = start(tmp_path, NNHAL_CACHE_DIR=str(tmp_path / "cache"))
        try:
            with raw_session(service.target) as raw:
                hit(raw) if i else save(raw)
        finally:
            stop(service)


def test_prepare_model_with_config_saves_as_well(serving: Serving) -> None:
    with serving() as raw:
        config = types_pb2.PrepareModelConfig(
            preference=enums_pb2.EXECUTION_PREFERENCE_LOW_POWER, priority=enums_pb2.PRIORITY_LOW, cache=STORED
        )
        request = device_pb2.PrepareModelWithConfigRequest(session=raw.session, model=MODEL, config=config)
        events, _ = read(raw.device.PrepareModelWithConfig(request, timeout=60))
        assert events[1].notify.cache.state == device_pb2.CACHE_STATE_SAVED
        hit(raw)


def test_without_a_cache_nothing_is_said_of_one(serving: Serving) -> None:
    with serving() as raw:
        events, _ = read(raw.device.PrepareModel(prepare_request(raw, MODEL), timeout=60))
        assert not events[1].notify.HasField("cache") and not events[1].notify.warnings
        assert not save(raw, types_pb2.CompilationCache(token=TOKEN)).HasField("cache")  # the form FILES, without files


def test_another_service_says_why_it_does_not_take_it_and_leaves_it(serving: Serving, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    with serving() as raw:
        save(raw)
    with serving(cache_key_file=key) as raw:
        assert missed(raw) == "it was saved with another key"
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    with serving(backends=("CpuAcc", "CpuRef")) as raw:
        assert missed(raw) == "it was made for the backends CpuRef; the device has CpuAcc, CpuRef"
    with serving() as raw:
        hit(raw)


def test_a_damaged_entry_is_set_aside_and_replaced(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        for name, reason in (("model", "seal"), ("data", "digest")):
            save(raw)
            (link,) = (tmp_path / "cache" / "entries").glob("*/*")
            path = link.resolve() / name
            held = bytearray(path.read_bytes())
            held[len(held) // 2] ^= 1
            path.write_bytes(held)
            assert reason in missed(raw)
            assert "no entry" in missed(raw)
        assert len(list((tmp_path / "cache" / "aside").iterdir())) == 2
        save(raw)
        hit(raw)


def test_what_is_wrong_with_a_stored_cache_is_a_warning_when_saving(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        short = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes(5))
        assert "5 bytes, must have 32" in not_saved(save(raw, short))
        assert "5 bytes, must have 32" in refused(raw, short).reason
        unknown = types_pb2.CompilationCache(form=7, token=TOKEN)  # type: ignore[arg-type]
        assert "form 7" in not_saved(save(raw, unknown))
        assert "form 7" in refused(raw, unknown).reason
        found = refused(raw, STORED, deadline_ns=-2)
        assert (found.status, found.rule) == (INVALID, "V-PREP-03")
    with serving(cache_bytes=0) as raw:
        assert "off" in not_saved(save(raw))
        assert "no entry" in missed(raw)
    with serving(cache_bytes=100) as raw:
        assert "100" in not_saved(save(raw))
        assert "no entry" in missed(raw)
    file = tmp_path / "file"
    file.write_text("no directory")
    with serving(cache_dir=file) as raw:
        assert str(file) in not_saved(save(raw))
        assert str(file) in missed(raw)


def test_a_failed_preparation_leaves_no_files(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        before = len(os.listdir("/proc/self/fd"))
        for request in (
            prepare_request(raw, MODEL, deadline_ns=0),  # fails by the callback
            prepare_request(raw, types_pb2.Model()),  # fails at the launch
        ):
            request.cache.CopyFrom(STORED)
            events, _ = read(raw.device.PrepareModel(request, timeout=60))
            assert events[-1].notify.status != enums_pb2.ERROR_STATUS_NONE
        assert "no entry" in missed(raw)
        assert generations(tmp_path) == []
        save(raw)
        hit(raw)
        assert len(generations(tmp_path)) == 1
        end = time.monotonic() + 10
        while len(os.listdir("/proc/self/fd")) > before + 5 and time.monotonic() < end:
            time.sleep(0.05)  # sockets of calls come and go
        assert len(os.listdir("/proc/self/fd")) <= before + 5


def test_a_launch_that_breaks_leaves_no_files(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("driver.device.Device.prepare_model", fail)
    with serving() as raw:
        request = prepare_request(raw, MODEL)
        request.cache.CopyFrom(STORED)
        events, error = read(raw.device.PrepareModel(request, timeout=60))
        assert error is not None and "out of luck" in events[0].notify.reason
        assert generations(tmp_path) == []


# ---- Files of the client ------------------------------------------------------------------------------------


def opened(raw: Raw, name: str, mode: cache_pb2.AccessMode.ValueType = cache_pb2.ACCESS_MODE_READ_WRITE) -> bytes:
    stub = cache_pb2_grpc.CacheStub(raw.channel)
    return stub.Open(cache_pb2.OpenCacheFileRequest(session=raw.session, name=name, mode=mode, offset=3)).file


def files(*, model: list[bytes], data: list[bytes]) -> types_pb2.CompilationCache:
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_FILES, model_cache=model, data_cache=data, token=TOKEN)


def test_files_of_the_client(serving: Serving) -> None:
    with serving() as raw:
        model, data = opened(raw, "model"), opened(raw, "data")
        cache = files(model=[model], data=[data])
        assert "nothing was saved" in missed(raw, cache)
        assert save(raw, cache).cache.state == device_pb2.CACHE_STATE_SAVED
        hit(raw, cache)
        other = types_pb2.CompilationCache.FromString(cache.SerializeToString())
        other.token = bytes(32)
        assert "another token" in missed(raw, other)
        assert "no model cache" in missed(raw, files(model=[data], data=[model]))
        numbers = raw.device.GetNumberOfCacheFilesNeeded(device_pb2.DeviceRequest())
        assert (numbers.num_model_cache, numbers.num_data_cache) == (1, 1)
    with serving() as raw:
        hit(raw, files(model=[opened(raw, "model")], data=[opened(raw, "data")]))


def test_wrong_files_are_a_warning_when_saving_and_an_error_when_loading(serving: Serving) -> None:
    with serving() as raw:
        model, data, spare = (opened(raw, name) for name in ("model", "data", "spare"))
        save(raw, files(model=[model], data=[data]))
        reading = opened(raw, "model", cache_pb2.ACCESS_MODE_READ_ONLY)
        writing = opened(raw, "data", cache_pb2.ACCESS_MODE_WRITE_ONLY)
        for wrong, reason in (
            (files(model=[model, spare], data=[data]), "2 model cache files"),
            (files(model=[], data=[data]), "0 model cache files"),
            (files(model=[model], data=[data, spare]), "2 data cache files"),
            (files(model=[model], data=[]), "0 data cache files"),
            (files(model=[reading], data=[data]), "open for reading only"),
            (files(model=[model], data=[writing]), "open for writing only"),
        ):
            assert reason in not_saved(save(raw, wrong))
            found = refused(raw, wrong)
            assert found.status == INVALID and reason in found.reason
        hit(raw, files(model=[model], data=[data]))


def test_files_of_another_session_are_unknown(serving: Serving) -> None:
    with serving() as raw:
        cache = files(model=[opened(raw, "model")], data=[opened(raw, "data")])
        stream = raw.sessions.Open(session_pb2.OpenRequest())
        other = replace(raw, session=next(iter(stream)).opened.session)
        not_saved(save(other, cache))
        assert refused(other, cache).kind == error_pb2.ERROR_KIND_UNKNOWN_HANDLE
        save(raw, cache)
        stream.cancel()
