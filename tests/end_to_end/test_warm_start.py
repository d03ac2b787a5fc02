"""Warm starts through the clients: what goes over the wire, what is said of it, and that a running client outlives its
service: it is killed and started anew, and every answer is right.
"""

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import ModelBuilder
from nnhal.local import Transport
from nnhal.types import AnyArray, CacheCounters, CacheState, Memory, Model, Priority
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.processes import Holdings
from tests.end_to_end.relay import relay

SIZE = 50_000
WEIGHTS = np.arange(SIZE, dtype=np.float32)
TOKEN = bytes(range(32))
KILLS = 3


def adding(weights: AnyArray = WEIGHTS) -> Model:
    """Adds 200 KB of constants to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [SIZE], name="x")
    b.output(b.add(Op.ADD, x, weights, 0, output=x.description))
    return b.build()


MODEL = adding()


class Restarted:
    """A service on a Unix socket that can be killed and started anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.target = f"unix:{folder}/socket"
        self.service = self.start()

    def start(self, **settings: str) -> Service:
        self.service = start(self._folder, "--backends", "CpuRef", "--listen", self.target, **settings)
        return self.service

    def kill(self) -> None:
        self.service.process.kill()
        self.service.process.wait(10)
        assert self.service.process.stdout is not None
        self.service.process.stdout.close()


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Restarted]:
    made = Restarted(tmp_path)
    yield made
    stop(made.service)


def right(prepared: "nnhal.PreparedModel", seed: int) -> bool:
    x = np.random.default_rng(seed).random(SIZE, np.float32)
    return bool((prepared.execute([x])[0] == x + WEIGHTS).all())


async def right_async(prepared: nnhal.aio.PreparedModel, seed: int) -> bool:
    x = np.random.default_rng(seed).random(SIZE, np.float32)
    return bool(((await prepared.execute([x]))[0] == x + WEIGHTS).all())


def test_nothing_but_the_token_goes_over_the_wire(restarted: Restarted) -> None:
    with relay(restarted.service.target) as wire:
        with nnhal.connect(wire.target, transport="grpc") as device:
            before = wire.sent
            first = device.prepare(MODEL, cache=True).result(30)
            assert (first.cache.state, first.cache.reason) == (CacheState.SAVED, "there is no entry for this token")
            assert wire.sent - before > WEIGHTS.nbytes
        with nnhal.connect(wire.target, transport="grpc") as device:
            device.prepare(MODEL, token=TOKEN).result(30)
            for options in ({"cache": True}, {"token": TOKEN}):
                before = wire.sent
                again = device.prepare(adding(), **options).result(30)
                assert (again.cache.state, again.cache.reason) == (CacheState.HIT, "")
                # token and session, the question for the version, and gRPC's headers and acknowledgements
                assert wire.sent - before < 1000
                assert right(again, 1) and again.input_names == ("x",)
                assert again.placement == first.placement and again.inputs == first.inputs


def test_would_it_load(restarted: Restarted) -> None:
    with nnhal.connect(restarted.target) as device:
        before = device.cached(MODEL)
        assert (before.state, before.reason) == (CacheState.MISS, "there is no entry for this token")
        device.prepare(MODEL, cache=True).result(30)
        assert device.cached(adding()).state == CacheState.HIT
        assert device.cached(MODEL, priority=Priority.LOW).state == CacheState.MISS
        assert device.cached(replace(MODEL, relax_computation_float32_to_float16=True)).state == CacheState.MISS
        assert device.cached(TOKEN).state == CacheState.MISS
        device.prepare(MODEL, token=TOKEN).result(30)
        assert device.cached(TOKEN).state == CacheState.HIT
        for call in (device.cached, lambda token: device.prepare(MODEL, token=token)):
            with pytest.raises(nnhal.HalError, match="must have 32"):
                call(b"short")


def test_what_the_cache_has_done_is_counted(restarted: Restarted) -> None:
    with nnhal.connect(restarted.target) as device:
        assert device.cache_counters() == CacheCounters()
        device.prepare(MODEL, token=TOKEN).result(30)
        for _ in range(2):
            device.prepare(MODEL, token=TOKEN).result(30)
            device.cached(TOKEN)
        assert device.cache_counters() == CacheCounters(hits=2, misses=1, saves=1)


async def test_would_it_load_with_asyncio(restarted: Restarted) -> None:
    async with nnhal.aio.connect(restarted.target, timeout=60) as device:
        assert (await device.cached(MODEL)).state == CacheState.MISS
        first = await device.prepare(MODEL, cache=True)
        assert (first.cache.state, first.cache.reason) == (CacheState.SAVED, "there is no entry for this token")
        assert (await device.cached(MODEL)).state == CacheState.HIT
        again = await device.prepare(MODEL, cache=True)
        assert again.cache.state == CacheState.HIT and await right_async(again, 1)
        assert (await device.cached(TOKEN)).state == CacheState.MISS
        assert await device.cache_counters() == CacheCounters(hits=1, misses=1, saves=1)
        with pytest.raises(nnhal.HalError, match="must have 32"):
            await device.prepare(MODEL, token=b"short")


def test_what_cannot_be_saved_says_why(restarted: Restarted) -> None:
    restarted.kill()
    restarted.start(NNHAL_CACHE_BYTES="0")
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(MODEL, cache=True).result(30)
        assert (prepared.cache.state, prepared.cache.reason) == (CacheState.NOT_SAVED, "the cache is off")
        assert [warning.code for warning in prepared.warnings] == ["cache-not-saved"]
        assert right(prepared, 1)
        plain = device.prepare(MODEL).result(30)
        assert plain.cache.state == CacheState.UNSPECIFIED


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_threads_outlive_kills(restarted: Restarted, transport: Transport) -> None:
    ended = threading.Event()
    wrong: list[object] = []
    answers = [0] * 6

    def work(number: int) -> None:
        try:
            while not ended.is_set():
                assert right(prepared, random.randrange(1000)), "a wrong answer"
                answers[number] += 1
        except BaseException as error:
            wrong.append(error)

    with nnhal.connect(restarted.target, transport=transport, timeout=60) as device:
        prepared = device.prepare(MODEL, cache=True).result(30)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(answers))]
        for thread in threads:
            thread.start()
        held = Holdings.of(os.getpid())
        for _ in range(KILLS):
            time.sleep(random.uniform(0.05, 0.3))
            restarted.kill()
            restarted.start()
            before = list(answers)
            until = time.monotonic() + 30
            while not all(now > then for now, then in zip(answers, before, strict=True)):
                assert not wrong and time.monotonic() < until, wrong
                time.sleep(0.01)
        ended.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert prepared.cache.state == CacheState.HIT
        log = restarted.service.log.read_text()
        assert log.count("session-opened") == 1  # one for all threads
        # a model that comes later finds the new session, and what was there before is gone
        assert right(device.prepare(MODEL, cache=True).result(30), 2)
        assert Holdings.of(os.getpid()).descriptors <= held.descriptors + len(threads) + 4


async def test_tasks_outlive_kills(restarted: Restarted) -> None:
    ended = False
    answers = [0] * 6

    async def work(number: int) -> None:
        while not ended:
            assert await right_async(prepared, random.randrange(1000))
            answers[number] += 1

    async with nnhal.aio.connect(restarted.target, timeout=60) as device:
        prepared = await device.prepare(MODEL, cache=True)
        async with asyncio.TaskGroup() as group:
            for number in range(len(answers)):
                group.create_task(work(number))
            for _ in range(KILLS):
                await asyncio.sleep(random.uniform(0.05, 0.3))
                await asyncio.to_thread(restarted.kill)
                await asyncio.to_thread(restarted.start)
                before = list(answers)
                async with asyncio.timeout(30):
                    while not all(now > then for now, then in zip(answers, before, strict=True)):
                        await asyncio.sleep(0.01)
            ended = True
        assert prepared.cache.state == CacheState.HIT
        assert restarted.service.log.read_text().count("session-opened") == 1


def test_without_the_entry_the_model_is_sent_again(restarted: Restarted) -> None:
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(MODEL, cache=True).result(30)
        restarted.kill()
        restarted.start(NNHAL_CACHE_BYTES="0")
        assert right(prepared, 1)
        assert prepared.cache.state == CacheState.NOT_SAVED


def test_a_new_preparation_finds_the_new_service_too(restarted: Restarted) -> None:
    with nnhal.connect(restarted.target) as device:
        restarted.kill()
        restarted.start()
        assert right(device.prepare(MODEL, cache=True).result(30), 1)


def test_constants_that_changed_meanwhile_are_not_taken_for_the_same(restarted: Restarted) -> None:
    model = adding()
    pools = [Memory.of(pool.view.copy()) for pool in model.pools if isinstance(pool, Memory)]
    assert pools
    writable = replace(model, pools=tuple(pools))
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(writable, cache=True).result(30)
        restarted.kill()
        restarted.start(NNHAL_CACHE_BYTES="0")
        for pool in pools:
            pool.view[:4] = 7
        with pytest.raises(nnhal.SessionLostError, match="changed"):
            right(prepared, 1)


def test_what_may_not_be_repeated_is_not(restarted: Restarted) -> None:
    with nnhal.connect(restarted.target) as device:
        plain = device.prepare(MODEL).result(30)
        prepared = device.prepare(MODEL, cache=True).result(30)
        buffer = device.allocate(outputs=[(prepared, 0)])
        restarted.kill()
        restarted.start()
        assert right(prepared, 1)
        for lost in (lambda: right(plain, 1), lambda: prepared.execute([WEIGHTS], outputs=[buffer]), buffer.read):
            with pytest.raises(nnhal.HalError):
                lost()
        with device.allocate(outputs=[(prepared, 0)]) as new, prepared.burst() as burst:
            prepared.execute([WEIGHTS], outputs=[new])
            np.testing.assert_array_equal(new.read(), 2 * WEIGHTS)
            np.testing.assert_array_equal(burst.execute([WEIGHTS])[0], 2 * WEIGHTS)


def test_a_service_that_does_not_come_back_is_an_error(restarted: Restarted) -> None:
    with nnhal.connect(restarted.target, timeout=1) as device:
        prepared = device.prepare(MODEL, cache=True).result(30)
        restarted.kill()
        with pytest.raises(nnhal.DeadObjectError, match="did not answer"):
            prepared.execute([WEIGHTS], deadline=0.5)
        with pytest.raises(nnhal.DeadObjectError, match="did not answer"):
            prepared.execute([WEIGHTS])
        restarted.start()
        assert right(prepared, 1)
    with pytest.raises(nnhal.SessionLostError, match="closed"):
        prepared.execute([WEIGHTS])


def test_a_session_that_goes_on_is_kept(tmp_path: Path) -> None:
    service = start(tmp_path, "--backends", "CpuRef", NNHAL_SESSION_GRACE_S="10")
    with relay(service.target) as cable, nnhal.connect(cable.target, transport="grpc") as device:
        prepared = device.prepare(MODEL, cache=True).result(30)
        with device.allocate(outputs=[(prepared, 0)]) as buffer:
            prepared.execute([WEIGHTS], outputs=[buffer])
            cable.cut()
            assert right(prepared, 1)
            np.testing.assert_array_equal(buffer.read(), 2 * WEIGHTS)
        assert service.log.read_text().count("session-opened") == 1
    stop(service)


def test_an_embedded_service_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_CACHE_DIR", str(tmp_path))
    with nnhal.connect() as device:
        prepared = device.prepare(MODEL, cache=True).result(30)
        service = device._lifeline._service
        assert service is not None
        os.kill(service.pid, 9)
        assert right(prepared, 1)
        assert prepared.cache.state == CacheState.HIT
        anew = device._lifeline._service
        assert anew is not None and anew.pid != service.pid
    assert not anew.running
