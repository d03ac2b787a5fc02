"""Preloaded models: clients get them without loading, and only while their entry is unchanged."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import nnhal
from nnhal import ModelBuilder
from nnhal.types import CacheState, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from nnhal_cache.store import Store
from nnhal_driver.device import Device
from nnhal_driver.model_cache.cache import CachedModel, ModelCache, VerifiedFiles
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.log import TextFormatter
from nnhal_service.model_cache.cache_arguments import CacheArguments
from nnhal_service.model_cache.preloader import ModelPreloader
from nnhal_service.server import Server
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings
from tests.end_to_end.support.service_process import start_service, stop_service

TOKENS = [bytes([number]) * 32 for number in range(3)]
BYTES = 2**30
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

Serving = Callable[..., AbstractContextManager[Server]]


def adding_model(number: float) -> Model:
    """Return a model that adds a number to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(Op.ADD, x, np.full(2, number, np.float32), 0, output=x.description))
    return b.build()


def prepare(device: nnhal.Device, token: bytes, number: float = 1) -> int:
    """Prepare and execute a model that adds a number."""
    prepared = device.prepare(adding_model(number), token=token).result(30)
    assert prepared.execute([np.zeros(2, np.float32)])[0].tolist() == [number, number]
    assert prepared.cache is not None
    return prepared.cache.state


def use(target: str, *counts: int) -> None:
    """Save a model for each token, which adds its index, and load it as often as given."""
    with nnhal.connect(target) as device:
        for number, count in enumerate(counts):
            assert prepare(device, TOKENS[number], number) == CacheState.SAVED
            for _ in range(count):
                assert prepare(device, TOKENS[number], number) == CacheState.HIT


def health_of(target: str, service: str = "nnhal.v1.Device") -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
    with grpc.insecure_channel(target) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status


def wait_until_healthy(target: str) -> None:
    end = time.monotonic() + 30
    while health_of(target) != SERVING:
        assert time.monotonic() < end, "the service did not become healthy"
        time.sleep(0.01)


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Run services, one after the other, with the same cache directory."""

    @contextmanager
    def run(**changed: Any) -> Iterator[Server]:
        settings = {"cache_dir": tmp_path / "cache", "backends": ("CpuRef",), **changed}
        with Server(Settings(listen=("127.0.0.1:0",), **settings)) as server:
            yield server

    return run


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the tokens of files that were loaded, in order."""
    tokens: list[bytes] = []
    load = ModelCache.load

    def counting_load(cache: ModelCache, verified: VerifiedFiles, *arguments: Any) -> CachedModel:
        tokens.append(verified.files.token)
        return load(cache, verified, *arguments)

    monkeypatch.setattr(ModelCache, "load", counting_load)
    return tokens


def test_restarted_service_has_the_most_used_models(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--backends", "CpuRef")
    try:
        use(service.target, 0, 2, 1)
    finally:
        stop_service(service)
    store = Store(tmp_path / "cache", BYTES)
    hits = {entry.token: entry.hits for entry in store.list()}
    service = start_service(tmp_path, "--backends", "CpuRef", "--warm", "2")
    try:
        wait_until_healthy(service.target)
        assert {entry.token: entry.hits for entry in store.list()} == hits  # preloading does not count as a use
        assert service.logged("warm models=2")
        with nnhal.connect(service.target) as device:
            for number, preloaded in ((1, 1), (2, 2), (0, 2), (1, 3)):
                assert prepare(device, TOKENS[number], number) == CacheState.HIT
                assert service.log.read_text().count("prepared-ahead") == preloaded
        assert {entry.token: entry.hits for entry in store.list()} == {t: hits[t] + (1, 2, 1)[t[0]] for t in TOKENS}
    finally:
        assert stop_service(service) == 0


def test_hit_loads_nothing_while_the_entry_is_unchanged(serving: Serving, loads: list[bytes]) -> None:
    with serving() as server:
        use(server.addresses[0], 0, 0, 0)
    with serving(warm=3) as server:
        wait_until_healthy(server.addresses[0])
        assert sorted(loads) == TOKENS
        loads.clear()
        with nnhal.connect(server.addresses[0]) as device, nnhal.connect(server.addresses[0]) as other:
            for _ in range(2):
                for client in (device, other):
                    assert prepare(client, TOKENS[0], 0) == CacheState.HIT
            assert loads == []
            server.store.clear(str(ANONYMOUS), [TOKENS[0]])
            assert device.cached(TOKENS[0]).state == CacheState.MISS
            assert prepare(device, TOKENS[0], 7) == CacheState.SAVED  # another model: the old one would answer 0
            assert prepare(device, TOKENS[0], 7) == CacheState.HIT
            assert loads == [TOKENS[0]]
            server.store.quarantine(str(ANONYMOUS), TOKENS[1], "for a test")
            assert prepare(device, TOKENS[1], 8) == CacheState.SAVED
            assert prepare(other, TOKENS[2], 2) == CacheState.HIT
            assert loads == [TOKENS[0]]


def test_each_device_preloads_its_own_model(serving: Serving, loads: list[bytes]) -> None:
    with serving() as server:
        use(server.addresses[0], 0, 0)
    with serving(warm=1, devices=("one", "other")) as server:
        wait_until_healthy(server.addresses[0])
        store, (first, *_) = server.store, server.store.list()
        assert loads == [first.token] * 2
        first_model, second_model = (
            server._preloader.get(device, str(ANONYMOUS), first.token, first.generation) for device in server._devices
        )
        assert first_model is not None and second_model is not None and first_model.plan is not second_model.plan
        assert len(store.list()) == 2


def test_an_entry_that_was_replaced_is_loaded(serving: Serving, loads: list[bytes]) -> None:
    with serving() as server:
        use(server.addresses[0], 0)
    with serving(warm=1) as server:
        wait_until_healthy(server.addresses[0])
        store, (entry,) = server.store, server.store.list()
        with store.write(str(ANONYMOUS), TOKENS[0]) as pending:  # another process of the same user may do so
            for name, descriptor in (("model", pending.model_fd), ("data", pending.data_fd)):
                os.write(descriptor, (store.layout.generations / entry.generation / name).read_bytes())
            pending.commit()
        with nnhal.connect(server.addresses[0]) as device:
            loads.clear()
            for _ in range(2):
                assert prepare(device, TOKENS[0], 0) == CacheState.HIT
            assert loads == [TOKENS[0]] * 2


def test_service_listens_at_once_and_is_healthy_when_models_are_ready(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(server.addresses[0], 0)
    started, proceed = threading.Event(), threading.Event()
    load = ModelCache.load

    def slow_load(cache: ModelCache, verified: VerifiedFiles, *arguments: Any) -> CachedModel:
        started.set()
        assert proceed.wait(30)
        return load(cache, verified, *arguments)

    monkeypatch.setattr(ModelCache, "load", slow_load)
    with serving(warm=1) as server:
        target = server.addresses[0]
        assert started.wait(30)
        assert (health_of(target), health_of(target, ""), health_of(target, "nnhal.v1.Cache")) == (
            NOT_SERVING,
            SERVING,
            SERVING,
        )
        with nnhal.connect(target) as device:
            assert device.prepare(adding_model(1)).result(30)
        proceed.set()
        wait_until_healthy(target)


def test_damaged_file_is_not_answered_from_memory(serving: Serving, tmp_path: Path, loads: list[bytes]) -> None:
    with serving() as server:
        use(server.addresses[0], 0)
    with serving(warm=1) as server, nnhal.connect(server.addresses[0]) as device:
        wait_until_healthy(server.addresses[0])
        loads.clear()
        assert prepare(device, TOKENS[0], 0) == CacheState.HIT and not loads
        (entry,) = Store(tmp_path / "cache", BYTES).list()
        with (tmp_path / "cache" / "generations" / entry.generation / "model").open("r+b") as file:
            file.seek(entry.size // 3)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        assert device.cached(TOKENS[0]).state == CacheState.MISS
        assert prepare(device, TOKENS[0], 0) == CacheState.SAVED and not loads
        assert len(list((tmp_path / "cache" / "aside").iterdir())) == 1


def test_without_models_the_service_is_healthy_at_once(serving: Serving) -> None:
    with serving() as server:
        assert health_of(server.addresses[0]) == SERVING
        assert not preloading_threads()


def preloading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "nnhal-warm"]


def test_stop_ends_preloading(serving: Serving, loads: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        use(server.addresses[0], 0, 0, 0)
    started = threading.Event()
    servers: list[Server] = []
    load = ModelCache.load

    def slow_load(cache: ModelCache, verified: VerifiedFiles, *arguments: Any) -> CachedModel:
        started.set()
        while not (servers and servers[0]._preloader._closed):
            time.sleep(0.01)
        return load(cache, verified, *arguments)

    monkeypatch.setattr(ModelCache, "load", slow_load)
    loads.clear()
    with serving(warm=3) as server:
        servers.append(server)
        assert started.wait(30) and preloading_threads()
    assert len(loads) == 1 and not preloading_threads()


def test_failed_preparation_does_not_make_the_service_unhealthy(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nnhal.service")
    caplog.handler.setFormatter(TextFormatter())
    with serving(warm=2) as server:  # no directory yet
        wait_until_healthy(server.addresses[0])
        use(server.addresses[0], 0, 3)
    damaged = next(entry for entry in Store(tmp_path / "cache", BYTES).list() if entry.hits)
    model = tmp_path / "cache" / "generations" / damaged.generation / "model"
    model.write_bytes(model.read_bytes()[:-1])
    with serving(warm=2) as server:
        wait_until_healthy(server.addresses[0])
        assert "not-warm" in caplog.text and "truncated" in caplog.text and "warm models=1" in caplog.text
        with nnhal.connect(server.addresses[0]) as device:
            assert prepare(device, TOKENS[1], 1) == CacheState.SAVED
            assert prepare(device, TOKENS[0], 0) == CacheState.HIT
    file = tmp_path / "file"
    file.write_text("no directory")
    with serving(warm=2, cache_dir=file) as server:
        wait_until_healthy(server.addresses[0])


def test_models_of_other_clients_tokens_devices_and_generations(tmp_path: Path) -> None:
    with Server(Settings(listen=("127.0.0.1:0",), cache_dir=tmp_path, backends=("CpuRef",))) as server:
        use(server.addresses[0], 0)
        store, device, (entry,) = server.store, server._devices[0], server.store.list()
        ready = threading.Event()
        preloader = ModelPreloader(store, [device], 1)
        preloader.start(ready.set)
        assert ready.wait(30)
        other = Device("other", device.backends)
        for other_key in (
            (other, str(ANONYMOUS), TOKENS[0], entry.generation),
            (device, "another client", TOKENS[0], entry.generation),
            (device, str(ANONYMOUS), TOKENS[1], entry.generation),
            (device, str(ANONYMOUS), TOKENS[0], None),  # files of the client
        ):
            assert preloader.get(*other_key) is None
        files = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_FILES, token=TOKENS[0])
        with CacheArguments(store, Limits()).open_for_loading(device, Session("test", ANONYMOUS), files) as source:
            assert source.generation is None
        key = (device, str(ANONYMOUS), TOKENS[0], entry.generation)
        assert preloader.get(*key) is not None
        assert preloader.get(device, str(ANONYMOUS), TOKENS[0], "") is None
        assert preloader.get(*key) is None  # released when the entry had disappeared
        other.close()
        preloader.close()
