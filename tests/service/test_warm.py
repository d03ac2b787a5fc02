"""Models that a service prepares on start: given out without loading, and only while their entry is what it was."""

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
from cache.store import Store
from driver.caching.files import OpenFiles
from driver.caching.keeper import Keeper, Kept
from driver.device import Device
from nnhal import ModelBuilder
from nnhal.types import CacheState, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from service.kept_models import KeptModels
from service.server import Server
from service.sessions import ANONYMOUS, Session
from service.settings import Settings
from service.warm import WarmModels
from tests.end_to_end.conftest import start, stop

TOKENS = [bytes([number]) * 32 for number in range(3)]
BYTES = 2**30
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

Serving = Callable[..., AbstractContextManager[Server]]


def adding(number: float) -> Model:
    """Adds a number to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(Op.ADD, x, np.full(2, number, np.float32), 0, output=x.description))
    return b.build()


def prepare(device: nnhal.Device, token: bytes, number: float = 1) -> int:
    """Prepares a model that adds a number, and runs it."""
    prepared = device.prepare(adding(number), token=token).result(30)
    assert prepared.execute([np.zeros(2, np.float32)])[0].tolist() == [number, number]
    assert prepared.cache is not None
    return prepared.cache.state


def use(target: str, *counts: int) -> None:
    """Saves a model for each token, which adds its place, and asks for it so many times."""
    with nnhal.connect(target) as device:
        for number, count in enumerate(counts):
            assert prepare(device, TOKENS[number], number) == CacheState.SAVED
            for _ in range(count):
                assert prepare(device, TOKENS[number], number) == CacheState.HIT


def healthy(target: str, service: str = "nnhal.v1.Device") -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
    with grpc.insecure_channel(target) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status


def wait_until_healthy(target: str) -> None:
    end = time.monotonic() + 30
    while healthy(target) != SERVING:
        assert time.monotonic() < end, "it never was healthy"
        time.sleep(0.01)


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Runs services, one after the other, with the same cache directory."""

    @contextmanager
    def run(**changed: Any) -> Iterator[Server]:
        settings = {"cache_dir": tmp_path / "cache", "backends": ("CpuRef",), **changed}
        with Server(Settings(listen=("127.0.0.1:0",), **settings)) as server:
            yield server

    return run


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The tokens of files that were loaded, in order."""
    found: list[bytes] = []
    load = Keeper.load

    def counted(keeper: Keeper, files: OpenFiles, check: Callable[[], None]) -> Kept:
        found.append(files.token)
        return load(keeper, files, check)

    monkeypatch.setattr(Keeper, "load", counted)
    return found


def test_a_restarted_service_gives_out_the_most_used_at_once(tmp_path: Path) -> None:
    service = start(tmp_path, "--backends", "CpuRef")
    try:
        use(service.target, 0, 2, 1)
    finally:
        stop(service)
    store = Store(tmp_path / "cache", BYTES)
    hits = {entry.token: entry.hits for entry in store.list()}
    service = start(tmp_path, "--backends", "CpuRef", "--warm", "2")
    try:
        wait_until_healthy(service.target)
        assert {entry.token: entry.hits for entry in store.list()} == hits  # nobody has used them yet
        assert service.logged("warm models=2")
        with nnhal.connect(service.target) as device:
            for number, ahead in ((1, 1), (2, 2), (0, 2), (1, 3)):
                assert prepare(device, TOKENS[number], number) == CacheState.HIT
                assert service.log.read_text().count("prepared-ahead") == ahead
        assert {entry.token: entry.hits for entry in store.list()} == {t: hits[t] + (1, 2, 1)[t[0]] for t in TOKENS}
    finally:
        assert stop(service) == 0


def test_a_hit_loads_nothing_while_the_entry_is_the_same(serving: Serving, loads: list[bytes]) -> None:
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
            server._store.clear(ANONYMOUS, [TOKENS[0]])
            assert device.cached(TOKENS[0]).state == CacheState.MISS
            assert prepare(device, TOKENS[0], 7) == CacheState.SAVED  # another model: the old one would answer 0
            assert prepare(device, TOKENS[0], 7) == CacheState.HIT
            assert loads == [TOKENS[0]]
            server._store.set_aside(ANONYMOUS, TOKENS[1], "for a test")
            assert prepare(device, TOKENS[1], 8) == CacheState.SAVED
            assert prepare(other, TOKENS[2], 2) == CacheState.HIT
            assert loads == [TOKENS[0]]


def test_each_device_has_its_own(serving: Serving, loads: list[bytes]) -> None:
    with serving() as server:
        use(server.addresses[0], 0, 0)
    with serving(warm=1, devices=("one", "other")) as server:
        wait_until_healthy(server.addresses[0])
        store, (first, *_) = server._store, server._store.list()
        assert loads == [first.token] * 2
        one, other = (server._warm.get(device, ANONYMOUS, first.token, first.generation) for device in server._devices)
        assert one is not None and other is not None and one.plan is not other.plan
        assert len(store.list()) == 2


def test_an_entry_that_was_replaced_is_loaded(serving: Serving, loads: list[bytes]) -> None:
    with serving() as server:
        use(server.addresses[0], 0)
    with serving(warm=1) as server:
        wait_until_healthy(server.addresses[0])
        store, (entry,) = server._store, server._store.list()
        with store.write(ANONYMOUS, TOKENS[0]) as pending:  # as another process of the same user may do
            for name, descriptor in (("model", pending.model_fd), ("data", pending.data_fd)):
                os.write(descriptor, (store.layout.generations / entry.generation / name).read_bytes())
            pending.commit()
        with nnhal.connect(server.addresses[0]) as device:
            loads.clear()
            for _ in range(2):
                assert prepare(device, TOKENS[0], 0) == CacheState.HIT
            assert loads == [TOKENS[0]] * 2


def test_it_listens_at_once_and_is_healthy_when_they_are_ready(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(server.addresses[0], 0)
    begun, go_on = threading.Event(), threading.Event()
    load = Keeper.load

    def slow(keeper: Keeper, files: OpenFiles, check: Callable[[], None]) -> Kept:
        begun.set()
        assert go_on.wait(30)
        return load(keeper, files, check)

    monkeypatch.setattr(Keeper, "load", slow)
    with serving(warm=1) as server:
        target = server.addresses[0]
        assert begun.wait(30)
        assert (healthy(target), healthy(target, ""), healthy(target, "nnhal.v1.Cache")) == (
            NOT_SERVING,
            SERVING,
            SERVING,
        )
        with nnhal.connect(target) as device:
            assert device.prepare(adding(1)).result(30)
        go_on.set()
        wait_until_healthy(target)


def test_without_models_to_prepare_it_is_healthy_at_once(serving: Serving) -> None:
    with serving() as server:
        assert healthy(server.addresses[0]) == SERVING
        assert not warming()


def warming() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "nnhal-warm"]


def test_a_stop_ends_the_work(serving: Serving, loads: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        use(server.addresses[0], 0, 0, 0)
    begun = threading.Event()
    load = Keeper.load

    def slow(keeper: Keeper, files: OpenFiles, check: Callable[[], None]) -> Kept:
        begun.set()
        while not server._warm._closed:
            time.sleep(0.01)
        return load(keeper, files, check)

    monkeypatch.setattr(Keeper, "load", slow)
    loads.clear()
    with serving(warm=3) as server:
        assert begun.wait(30) and warming()
    assert len(loads) == 1 and not warming()


def test_what_cannot_be_prepared_does_not_make_it_unhealthy(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nnhal.service")
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


def test_only_that_client_token_device_and_generation(tmp_path: Path) -> None:
    with Server(Settings(listen=("127.0.0.1:0",), cache_dir=tmp_path, backends=("CpuRef",))) as server:
        use(server.addresses[0], 0)
        store, device, (entry,) = server._store, server._devices[0], server._store.list()
        ready = threading.Event()
        warm = WarmModels(store, [device], 1)
        warm.start(ready.set)
        assert ready.wait(30)
        other = Device("other", device.backends)
        for wrong in (
            (other, ANONYMOUS, TOKENS[0], entry.generation),
            (device, "somebody", TOKENS[0], entry.generation),
            (device, ANONYMOUS, TOKENS[1], entry.generation),
            (device, ANONYMOUS, TOKENS[0], None),  # files of the client
        ):
            assert warm.get(*wrong) is None
        files = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_FILES, token=TOKENS[0])
        with KeptModels(store).found(Session("test", ANONYMOUS), files) as found:
            assert found.generation is None
        right = (device, ANONYMOUS, TOKENS[0], entry.generation)
        assert warm.get(*right) is not None
        assert warm.get(device, ANONYMOUS, TOKENS[0], "") is None
        assert warm.get(*right) is None  # let go when the entry was found to have gone
        other.close()
        warm.close()
