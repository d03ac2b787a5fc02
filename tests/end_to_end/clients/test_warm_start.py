"""Warm starts: bytes on the wire, cache states, and clients that continue when their service restarts."""

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import ModelBuilder
from nnhal.client.core.session import Transport
from nnhal.types import AnyArray, CacheCounters, CacheState, Memory, Model, PreparationWarning, Priority
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.concurrency import wait_until
from tests.end_to_end.support.process_usage import ProcessUsage
from tests.end_to_end.support.relay import relay
from tests.end_to_end.support.service_process import Service, has_ended, start_service, stop_service

SIZE = 50_000
WEIGHTS = np.arange(SIZE, dtype=np.float32)
TOKEN = bytes(range(32))
KILLS = 3


def adding_model(weights: AnyArray = WEIGHTS) -> Model:
    """Return a model that adds 200 KB of constants to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [SIZE], name="x")
    b.output(b.add(Op.ADD, x, weights, 0, output=x.description))
    return b.build()


MODEL = adding_model()


class RestartableService:
    """Service on a Unix socket that can be killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.target = f"unix:{folder}/socket"
        self.service = self.start()

    def start(self, **settings: str) -> Service:
        self.service = start_service(self._folder, "--backends", "CpuRef", "--listen", self.target, **settings)
        return self.service

    def kill(self) -> None:
        supervisor = self.service.process.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        self.service.process.kill()
        self.service.process.wait(60)
        assert wait_until(lambda: all(has_ended(int(child)) for child in children), 60)  # they listen until then
        assert self.service.process.stdout is not None
        self.service.process.stdout.close()


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[RestartableService]:
    service = RestartableService(tmp_path)
    yield service
    stop_service(service.service)


def output_is_correct(prepared: "nnhal.PreparedModel", seed: int) -> bool:
    x = np.random.default_rng(seed).random(SIZE, np.float32)
    return bool((prepared.execute([x])[0] == x + WEIGHTS).all())


async def output_is_correct_async(prepared: nnhal.aio.PreparedModel, seed: int) -> bool:
    x = np.random.default_rng(seed).random(SIZE, np.float32)
    return bool(((await prepared.execute([x]))[0] == x + WEIGHTS).all())


def test_only_the_token_is_sent(restarted: RestartableService) -> None:
    with relay(restarted.service.target) as wire:
        with nnhal.connect(wire.target, transport="grpc") as device:
            before = wire.sent
            first = device.prepare(MODEL, cache=True).result(60)
            assert (first.cache.state, first.cache.reason) == (CacheState.SAVED, "there is no entry for this token")
            assert wire.sent - before > WEIGHTS.nbytes
        with nnhal.connect(wire.target, transport="grpc") as device:
            device.prepare(MODEL, token=TOKEN).result(60)
            for options in ({"cache": True}, {"token": TOKEN}):
                before = wire.sent
                again = device.prepare(adding_model(), **options).result(60)
                assert (again.cache.state, again.cache.reason) == (CacheState.HIT, "")
                # token and session, GetVersionString, and gRPC's headers and acknowledgements
                assert wire.sent - before < 1000
                assert output_is_correct(again, 1) and again.input_names == ("x",)
                assert again.placement == first.placement and again.inputs == first.inputs


def test_cached_tells_whether_a_model_would_load(restarted: RestartableService) -> None:
    with nnhal.connect(restarted.target) as device:
        before = device.cached(MODEL)
        assert (before.state, before.reason) == (CacheState.MISS, "there is no entry for this token")
        device.prepare(MODEL, cache=True).result(60)
        assert device.cached(adding_model()).state == CacheState.HIT
        assert device.cached(MODEL, priority=Priority.LOW).state == CacheState.MISS
        assert device.cached(replace(MODEL, relax_computation_float32_to_float16=True)).state == CacheState.MISS
        assert device.cached(TOKEN).state == CacheState.MISS
        device.prepare(MODEL, token=TOKEN).result(60)
        assert device.cached(TOKEN).state == CacheState.HIT
        for call in (device.cached, lambda token: device.prepare(MODEL, token=token)):
            with pytest.raises(nnhal.HalError, match="must have 32"):
                call(b"short")


def test_cache_counters(restarted: RestartableService) -> None:
    with nnhal.connect(restarted.target) as device:
        assert device.cache_counters() == CacheCounters()
        device.prepare(MODEL, token=TOKEN).result(60)
        for _ in range(2):
            device.prepare(MODEL, token=TOKEN).result(60)
            device.cached(TOKEN)
        assert device.cache_counters() == CacheCounters(hits=2, misses=1, saves=1)


async def test_cached_of_the_asyncio_client(restarted: RestartableService) -> None:
    async with nnhal.aio.connect(restarted.target, timeout=60) as device:
        assert (await device.cached(MODEL)).state == CacheState.MISS
        first = await device.prepare(MODEL, cache=True)
        assert (first.cache.state, first.cache.reason) == (CacheState.SAVED, "there is no entry for this token")
        assert (await device.cached(MODEL)).state == CacheState.HIT
        again = await device.prepare(MODEL, cache=True)
        assert again.cache.state == CacheState.HIT and await output_is_correct_async(again, 1)
        assert (await device.cached(TOKEN)).state == CacheState.MISS
        assert await device.cache_counters() == CacheCounters(hits=1, misses=1, saves=1)
        with pytest.raises(nnhal.HalError, match="must have 32"):
            await device.prepare(MODEL, token=b"short")


def test_models_that_are_not_saved_have_a_reason(restarted: RestartableService) -> None:
    restarted.kill()
    restarted.start(NNHAL_CACHE_BYTES="0")
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        assert (prepared.cache.state, prepared.cache.reason) == (CacheState.NOT_SAVED, "the cache is off")
        assert [warning.code for warning in prepared.warnings] == ["cache-not-saved"]
        assert isinstance(prepared.warnings[0], PreparationWarning)
        assert output_is_correct(prepared, 1)
        plain = device.prepare(MODEL).result(60)
        assert plain.cache.state == CacheState.UNSPECIFIED


def all_have_grown(counts: Sequence[int], before: Sequence[int]) -> bool:
    return all(now > then for now, then in zip(counts, before, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_threads_continue_after_kills(restarted: RestartableService, transport: Transport) -> None:
    ended = threading.Event()
    errors: list[object] = []
    answers = [0] * 6

    def work(number: int) -> None:
        try:
            while not ended.is_set():
                assert output_is_correct(prepared, random.randrange(1000)), "an output is wrong"
                answers[number] += 1
        except BaseException as error:
            errors.append(error)

    with nnhal.connect(restarted.target, transport=transport, timeout=60) as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(answers))]
        for thread in threads:
            thread.start()
        usage = ProcessUsage.read(os.getpid())
        for _ in range(KILLS):
            time.sleep(random.uniform(0.05, 0.3))
            restarted.kill()
            restarted.start()
            before = list(answers)
            assert wait_until(lambda: errors or all_have_grown(answers, before))  # noqa: B023
            assert not errors
        ended.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert prepared.cache.state == CacheState.HIT
        log = restarted.service.log.read_text()
        assert log.count("session-opened") == 1  # one for all threads
        # a later preparation uses the new session, and the old one has left no descriptors
        assert output_is_correct(device.prepare(MODEL, cache=True).result(60), 2)
        assert ProcessUsage.read(os.getpid()).descriptors <= usage.descriptors + len(threads) + 4


@pytest.mark.slow
async def test_tasks_continue_after_kills(restarted: RestartableService) -> None:
    ended = False
    answers = [0] * 6

    async def work(number: int) -> None:
        while not ended:
            assert await output_is_correct_async(prepared, random.randrange(1000))
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
                async with asyncio.timeout(60):
                    while not all_have_grown(answers, before):
                        await asyncio.sleep(0.01)
            ended = True
        assert prepared.cache.state == CacheState.HIT
        assert restarted.service.log.read_text().count("session-opened") == 1


def test_model_is_sent_again_without_a_cache_entry(restarted: RestartableService) -> None:
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        restarted.kill()
        restarted.start(NNHAL_CACHE_BYTES="0")
        assert output_is_correct(prepared, 1)
        assert prepared.cache.state == CacheState.NOT_SAVED


def test_new_preparation_after_a_restart(restarted: RestartableService) -> None:
    with nnhal.connect(restarted.target) as device:
        restarted.kill()
        restarted.start()
        assert output_is_correct(device.prepare(MODEL, cache=True).result(60), 1)


def test_changed_constants_are_not_prepared_again(restarted: RestartableService) -> None:
    model = adding_model()
    pools = [Memory.of(pool.view.copy()) for pool in model.pools if isinstance(pool, Memory)]
    assert pools
    writable = replace(model, pools=tuple(pools))
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(writable, cache=True).result(60)
        restarted.kill()
        restarted.start(NNHAL_CACHE_BYTES="0")
        for pool in pools:
            pool.view[:4] = 7
        with pytest.raises(nnhal.SessionLostError, match="changed"):
            output_is_correct(prepared, 1)


def test_objects_that_cannot_be_restored_fail_after_a_restart(restarted: RestartableService) -> None:
    with nnhal.connect(restarted.target) as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        buffer = device.allocate(outputs=[(prepared, 0)])
        restarted.kill()
        restarted.start()
        assert output_is_correct(prepared, 1)
        for lost in (
            lambda: prepared.execute([WEIGHTS], outputs=[buffer]),
            buffer.read,
        ):
            with pytest.raises(nnhal.SessionLostError):
                lost()
        with device.allocate(outputs=[(prepared, 0)]) as new, prepared.burst() as burst:
            prepared.execute([WEIGHTS], outputs=[new])
            np.testing.assert_array_equal(new.read(), 2 * WEIGHTS)
            np.testing.assert_array_equal(burst.execute([WEIGHTS])[0], 2 * WEIGHTS)


@pytest.mark.slow
def test_service_that_does_not_restart(restarted: RestartableService) -> None:
    with nnhal.connect(restarted.target, timeout=60) as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        restarted.kill()
        device._session._timeout = 1  # only now: a busy service may need longer to respond
        with pytest.raises(nnhal.DeadObjectError, match=r"there is no such socket|connection refused"):
            prepared.execute([WEIGHTS], deadline=0.5)
        with pytest.raises(nnhal.DeadObjectError, match=r"there is no such socket|connection refused"):
            prepared.execute([WEIGHTS])
        device._session._timeout = 60
        restarted.start()
        assert output_is_correct(prepared, 1)
    with pytest.raises(nnhal.SessionLostError, match="closed"):
        prepared.execute([WEIGHTS])


def test_session_survives_a_broken_connection(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--backends", "CpuRef", NNHAL_SESSION_GRACE_S="60")
    with relay(service.target) as cable, nnhal.connect(cable.target, transport="grpc") as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        with device.allocate(outputs=[(prepared, 0)]) as buffer:
            prepared.execute([WEIGHTS], outputs=[buffer])
            cable.cut()
            assert output_is_correct(prepared, 1)
            np.testing.assert_array_equal(buffer.read(), 2 * WEIGHTS)
        assert service.log.read_text().count("session-opened") == 1
    stop_service(service)


def test_embedded_service_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_CACHE_DIR", str(tmp_path))
    with nnhal.connect() as device:
        prepared = device.prepare(MODEL, cache=True).result(60)
        service = device._session._service
        assert service is not None
        os.kill(service.pid, signal.SIGKILL)
        assert wait_until(lambda: not service.running), "until then, the service may respond"
        assert output_is_correct(prepared, 1)
        assert prepared.cache.state == CacheState.HIT
        restarted = device._session._service
        assert restarted is not None and restarted.pid != service.pid
    assert not restarted.running
