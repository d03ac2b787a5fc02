"""Preparations with a cache: models are saved, loaded by another service, or rejected with a reason."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.client.shm import data_socket
from nnhal.shm.protocol import FILE, MAX_BYTES, Packet, PacketKind
from nnhal.v1 import cache_pb2, cache_pb2_grpc, device_pb2, enums_pb2, error_pb2, session_pb2, types_pb2
from nnhal_cache.store import Store
from nnhal_driver.model_cache.files import FileWriter
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.end_to_end.support.preparation_events import Events, kinds, read_events
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import start_service, stop_service

TOKEN = bytes(range(32))
STORED = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=TOKEN)
MODEL = add_chain(3)
INVALID = enums_pb2.ERROR_STATUS_INVALID_ARGUMENT

Serving = Callable[..., AbstractContextManager[RawSession]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Return a function that runs a service with one session. All services have the same cache directory."""

    @contextmanager
    def run(**changed: Any) -> Iterator[RawSession]:
        settings = {"cache_dir": tmp_path / "cache", "backends": ("CpuRef",), **changed}
        with (
            Server(Settings(listen=("127.0.0.1:0",), **settings)) as server,
            open_raw_session(server.addresses[0]) as raw,
        ):
            yield raw

    return run


def save(raw: RawSession, cache: types_pb2.CompilationCache = STORED) -> device_pb2.Notify:
    """Prepare MODEL and try to save it; the preparation succeeds in any case."""
    request = prepare_request(raw, MODEL)
    request.cache.CopyFrom(cache)
    events, error = read_events(raw.device.PrepareModel(request, timeout=60))
    assert error is None and kinds(events) == ["launched", "notify"]
    notify = events[1].notify
    assert notify.status == enums_pb2.ERROR_STATUS_NONE, notify.reason
    check_execution(raw, notify)
    return notify


def load(
    raw: RawSession, cache: types_pb2.CompilationCache = STORED, deadline_ns: int | None = None
) -> tuple[Events, grpc.RpcError | None]:
    """Load MODEL from the cache."""
    request = device_pb2.PrepareModelFromCacheRequest(session=raw.session, cache=cache, deadline_ns=deadline_ns)
    return read_events(raw.device.PrepareModelFromCache(request, timeout=60))


def load_hit(raw: RawSession, cache: types_pb2.CompilationCache = STORED) -> device_pb2.Notify:
    """Load MODEL, check that it was found, and execute it."""
    assert check(raw, cache).state == device_pb2.CACHE_STATE_HIT
    events, error = load(raw, cache)
    assert error is None and kinds(events) == ["launched", "notify"]
    notify = events[1].notify
    assert (notify.status, notify.cache.state, notify.cache.reason) == (0, device_pb2.CACHE_STATE_HIT, "")
    check_execution(raw, notify)
    return notify


def load_miss(raw: RawSession, cache: types_pb2.CompilationCache = STORED, *, launched: bool = False) -> str:
    """Load MODEL, check that it was not found, and return the reason. Check returns the same reason.

    Args:
        raw: the session.
        cache: the cache arguments.
        launched: whether the miss is found after the launch. Otherwise, the call fails too.
    """
    before = check(raw, cache)
    events, error = load(raw, cache)
    notify = events[-1].notify
    assert kinds(events) == (["launched", "notify"] if launched else ["notify"])
    if launched:
        assert error is None
    else:
        assert error is not None
        detail = error_detail(error)
        assert (detail.status, detail.reason) == (notify.status, notify.reason)
    assert (notify.status, notify.prepared_model) == (enums_pb2.ERROR_STATUS_GENERAL_FAILURE, b"")
    assert notify.cache.state == device_pb2.CACHE_STATE_MISS
    assert notify.reason == f"cache miss: {notify.cache.reason}"
    assert before == notify.cache
    return notify.cache.reason


def check(raw: RawSession, cache: types_pb2.CompilationCache) -> device_pb2.CacheOutcome:
    stub = cache_pb2_grpc.CacheStub(raw.channel)
    return stub.Check(cache_pb2.CheckCacheRequest(session=raw.session, cache=cache), timeout=60).outcome


def load_error(
    raw: RawSession, cache: types_pb2.CompilationCache, deadline_ns: int | None = None
) -> error_pb2.ErrorDetail:
    """Load MODEL, check that the launch fails in notify and in the call, and return the error."""
    events, error = load(raw, cache, deadline_ns)
    assert error is not None and kinds(events) == ["notify"]
    rejection = error_detail(error)
    assert (events[0].notify.status, events[0].notify.reason) == (rejection.status, rejection.reason)
    return rejection


def check_execution(raw: RawSession, notify: device_pb2.Notify) -> None:
    """Check that the model adds 3 to its input."""
    request = execute_request(raw, notify.prepared_model, [np.array([1, 2], np.float32)])
    (output,) = raw.prepared_model.ExecuteSynchronously(request, timeout=60).returned
    assert np.frombuffer(output.inline, np.float32).tolist() == [4, 5]


def reason_not_saved(notify: device_pb2.Notify) -> str:
    """Check that nothing was saved, with a warning, and return the reason."""
    assert notify.cache.state == device_pb2.CACHE_STATE_NOT_SAVED
    assert [(w.code, w.text) for w in notify.warnings] == [("cache-not-saved", notify.cache.reason)]
    return notify.cache.reason


def generations(tmp_path: Path) -> list[Path]:
    """Return the folders of all entries."""
    return list((tmp_path / "cache" / "generations").iterdir())


def test_another_service_loads_a_saved_model(serving: Serving) -> None:
    with serving() as raw:
        assert "no entry" in load_miss(raw)
        saved = save(raw)
        assert (saved.cache.state, list(saved.warnings)) == (device_pb2.CACHE_STATE_SAVED, [])
        load_hit(raw)
    with serving() as raw:
        loaded = load_hit(raw)
    assert loaded.placement == saved.placement
    assert (list(loaded.inputs), list(loaded.outputs)) == (list(saved.inputs), list(saved.outputs))
    assert len(loaded.inputs) == len(loaded.outputs) == 1


def test_check_does_not_count_as_a_use(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        assert check(raw, STORED).state == device_pb2.CACHE_STATE_MISS
        save(raw)
        store = Store(tmp_path / "cache", 2**30)
        (before,) = store.list()
        for _ in range(2):
            assert check(raw, STORED).state == device_pb2.CACHE_STATE_HIT
        assert store.list() == [before]


def test_another_process_loads_a_saved_model(tmp_path: Path) -> None:
    for i in range(2):
        service = start_service(tmp_path, NNHAL_CACHE_DIR=str(tmp_path / "cache"))
        try:
            with open_raw_session(service.target) as raw:
                load_hit(raw) if i else save(raw)
        finally:
            stop_service(service)


def test_prepare_model_with_config_saves(serving: Serving) -> None:
    with serving() as raw:
        config = types_pb2.PrepareModelConfig(
            preference=enums_pb2.EXECUTION_PREFERENCE_LOW_POWER, priority=enums_pb2.PRIORITY_LOW, cache=STORED
        )
        request = device_pb2.PrepareModelWithConfigRequest(session=raw.session, model=MODEL, config=config)
        events, _ = read_events(raw.device.PrepareModelWithConfig(request, timeout=60))
        assert events[1].notify.cache.state == device_pb2.CACHE_STATE_SAVED
        load_hit(raw)


def test_preparation_without_cache_reports_none(serving: Serving) -> None:
    with serving() as raw:
        events, _ = read_events(raw.device.PrepareModel(prepare_request(raw, MODEL), timeout=60))
        assert not events[1].notify.HasField("cache") and not events[1].notify.warnings
        assert not save(raw, types_pb2.CompilationCache(token=TOKEN)).HasField("cache")  # form FILES without files


def test_service_with_other_settings_says_why_it_does_not_load(serving: Serving, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    with serving() as raw:
        save(raw)
    with serving(cache_key_file=key) as raw:
        assert load_miss(raw) == "it was saved with another key"
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    with serving(backends=("CpuAcc", "CpuRef")) as raw:
        assert load_miss(raw) == "it was made for the backends CpuRef; the device has CpuAcc, CpuRef"
    with serving() as raw:
        load_hit(raw)


def test_damaged_entry_is_quarantined_and_replaced(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        for name, reason in (("model", "seal"), ("data", "digest")):
            save(raw)
            (link,) = (tmp_path / "cache" / "entries").glob("*/*")
            path = link.resolve() / name
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
            assert reason in load_miss(raw, launched=name == "data")
            assert "no entry" in load_miss(raw)
        assert len(list((tmp_path / "cache" / "aside").iterdir())) == 2
        save(raw)
        load_hit(raw)


def test_invalid_arguments_are_a_warning_when_saving(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        short = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes(5))
        assert "5 bytes, must have 32" in reason_not_saved(save(raw, short))
        assert "5 bytes, must have 32" in load_error(raw, short).reason
        unknown = types_pb2.CompilationCache(form=7, token=TOKEN)  # type: ignore[arg-type]
        assert "form 7" in reason_not_saved(save(raw, unknown))
        assert "form 7" in load_error(raw, unknown).reason
        error = load_error(raw, STORED, deadline_ns=-2)
        assert (error.status, error.rule) == (INVALID, "V-PREP-03")
    with serving(cache_bytes=0) as raw:
        assert "off" in reason_not_saved(save(raw))
        assert load_miss(raw) == "the cache is off"
        check_no_caching(raw)
    with serving(cache_bytes=100) as raw:
        assert "100" in reason_not_saved(save(raw))
        assert "no entry" in load_miss(raw)
    file = tmp_path / "file"
    file.write_text("no directory")
    with serving(cache_dir=file) as raw:
        assert str(file) in reason_not_saved(save(raw))
        assert str(file) in load_miss(raw)
        check_no_caching(raw)


def test_entry_that_is_too_large_is_not_written(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(FileWriter, "write", lambda writer, data: written.append(len(data)))
    with serving(cache_bytes=100) as raw:
        assert "the cache has a limit of 100 bytes" in reason_not_saved(save(raw))
    assert not written


def test_failed_preparation_leaves_no_files(serving: Serving, tmp_path: Path) -> None:
    with serving() as raw:
        before = len(os.listdir("/proc/self/fd"))
        for request in (
            prepare_request(raw, MODEL, deadline_ns=0),  # fails in the callback
            prepare_request(raw, types_pb2.Model()),  # fails in the launch
        ):
            request.cache.CopyFrom(STORED)
            events, _ = read_events(raw.device.PrepareModel(request, timeout=60))
            assert events[-1].notify.status != enums_pb2.ERROR_STATUS_NONE
        assert "no entry" in load_miss(raw)
        assert generations(tmp_path) == []
        save(raw)
        load_hit(raw)
        assert len(generations(tmp_path)) == 1
        # calls open and close sockets
        assert wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 5)


def test_failed_launch_leaves_no_files(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("backend failure")

    monkeypatch.setattr("nnhal_driver.device.Device.prepare_model", fail)
    with serving() as raw:
        request = prepare_request(raw, MODEL)
        request.cache.CopyFrom(STORED)
        events, error = read_events(raw.device.PrepareModel(request, timeout=60))
        assert error is not None and "backend failure" in events[0].notify.reason
        assert generations(tmp_path) == []


# ---- Files of the client ------------------------------------------------------------------------------------


def open_file(
    raw: RawSession, name: str, mode: cache_pb2.AccessMode.ValueType = cache_pb2.ACCESS_MODE_READ_WRITE
) -> bytes:
    stub = cache_pb2_grpc.CacheStub(raw.channel)
    return stub.Open(cache_pb2.OpenCacheFileRequest(session=raw.session, name=name, mode=mode, offset=3)).file


def files(*, model: list[bytes], data: list[bytes]) -> types_pb2.CompilationCache:
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_FILES, model_cache=model, data_cache=data, token=TOKEN)


def test_files_of_the_client(serving: Serving) -> None:
    with serving() as raw:
        model, data = open_file(raw, "model"), open_file(raw, "data")
        cache = files(model=[model], data=[data])
        assert "nothing was saved" in load_miss(raw, cache)
        assert save(raw, cache).cache.state == device_pb2.CACHE_STATE_SAVED
        load_hit(raw, cache)
        other = types_pb2.CompilationCache.FromString(cache.SerializeToString())
        other.token = bytes(32)
        assert "another token" in load_miss(raw, other)
        assert "invalid size" in load_miss(raw, files(model=[data], data=[model]))
        numbers = raw.device.GetNumberOfCacheFilesNeeded(device_pb2.DeviceRequest())
        assert (numbers.num_model_cache, numbers.num_data_cache) == (1, 1)
    with serving() as raw:
        load_hit(raw, files(model=[open_file(raw, "model")], data=[open_file(raw, "data")]))


def test_named_files_are_limited_when_a_model_is_saved_to_them(serving: Serving) -> None:
    """The limit on named files holds for those that the driver writes, and not for those that the client shares."""
    with serving(limits={"cache_file_bytes": 100}) as raw:
        cache = files(model=[open_file(raw, "model")], data=[open_file(raw, "data")])
        assert "the limit is 100 (cache_file_bytes)" in reason_not_saved(save(raw, cache))
        assert "nothing was saved" in load_miss(raw, cache)
        with share_files(raw) as shared:
            assert save(raw, shared).cache.state == device_pb2.CACHE_STATE_SAVED


@contextmanager
def share_files(raw: RawSession) -> Iterator[types_pb2.CompilationCache]:
    """Share two empty files over the data socket."""
    stub = cache_pb2_grpc.CacheStub(raw.channel)
    handles = []
    with closing(data_socket.connect(raw.opened.data_socket, raw.session, raw.opened.data_secret)) as connection:
        for number in (1, 2):
            descriptor = os.memfd_create("cache")
            data_socket.send_packet(connection, Packet(PacketKind.SHARE, number, FILE).pack(), [descriptor])
            os.close(descriptor)
            assert Packet.unpack(connection.recv(MAX_BYTES)).kind == PacketKind.DONE
            request = cache_pb2.OpenCacheFileRequest(session=raw.session, shared=number)
            handles.append(stub.Open(request).file)
        yield files(model=handles[:1], data=handles[1:])


def check_no_caching(raw: RawSession) -> None:
    """Check that a device needs no files, and neither saves to nor loads from those that the client shares."""
    numbers = raw.device.GetNumberOfCacheFilesNeeded(device_pb2.DeviceRequest())
    assert (numbers.num_model_cache, numbers.num_data_cache) == (0, 0)
    with share_files(raw) as cache:
        reason = reason_not_saved(save(raw, cache))
        assert load_miss(raw, cache) == reason
    assert not save(raw, types_pb2.CompilationCache(token=TOKEN)).HasField("cache")


def test_same_file_is_not_both_caches(serving: Serving) -> None:
    reason = "the model cache and the data cache are the same file"
    with serving() as raw:
        model, again, data = (open_file(raw, name) for name in ("model", "model", "data"))
        for handles in ((model, model), (model, again)):
            cache = files(model=[handles[0]], data=[handles[1]])
            assert reason in reason_not_saved(save(raw, cache))
            error = load_error(raw, cache)
            assert error.status == INVALID and reason in error.reason
        cache = files(model=[again], data=[data])
        assert save(raw, cache).cache.state == device_pb2.CACHE_STATE_SAVED
        load_hit(raw, cache)


def test_wrong_files_are_a_warning_when_saving_and_an_error_when_loading(serving: Serving) -> None:
    with serving() as raw:
        model, data, spare = (open_file(raw, name) for name in ("model", "data", "spare"))
        save(raw, files(model=[model], data=[data]))
        reading = open_file(raw, "model", cache_pb2.ACCESS_MODE_READ_ONLY)
        writing = open_file(raw, "data", cache_pb2.ACCESS_MODE_WRITE_ONLY)
        for wrong, reason in (
            (files(model=[model, spare], data=[data]), "2 model cache files"),
            (files(model=[], data=[data]), "0 model cache files"),
            (files(model=[model], data=[data, spare]), "2 data cache files"),
            (files(model=[model], data=[]), "0 data cache files"),
            (files(model=[reading], data=[data]), "open for reading only"),
            (files(model=[model], data=[writing]), "open for writing only"),
        ):
            assert reason in reason_not_saved(save(raw, wrong))
            error = load_error(raw, wrong)
            assert error.status == INVALID and reason in error.reason
        load_hit(raw, files(model=[model], data=[data]))


def test_files_of_another_session_are_unknown(serving: Serving) -> None:
    with serving() as raw:
        cache = files(model=[open_file(raw, "model")], data=[open_file(raw, "data")])
        stream = raw.sessions.Open(session_pb2.OpenRequest())
        other = replace(raw, session=next(iter(stream)).opened.session)
        reason_not_saved(save(other, cache))
        assert load_error(other, cache).kind == error_pb2.ERROR_KIND_UNKNOWN_HANDLE
        save(raw, cache)
        stream.cancel()
