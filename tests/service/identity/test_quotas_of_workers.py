"""Quotas of an identity in a real service with two workers: they count for the service."""

import operator
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal_service.identity.tokens import create_token
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE
from tests.end_to_end.support.service_process import start_service, stop_service

RELOADS = 20
POLICY = '{"default": {"sessions": 2, "prepared_models": 2, "memory_bytes": 10000}}'
ONE = np.ones(2, np.float32)


def refusal(call: Callable[[], object]) -> HalError:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value


@pytest.mark.slow
def test_quotas_count_in_all_workers_and_survive_a_reload(tmp_path: Path) -> None:
    created = {name: create_token(name) for name in ("alice", "bob")}
    file = tmp_path / "tokens"
    file.write_text("\n".join(line for _, line in created.values()))
    file.chmod(0o600)
    options = ("--workers", "2", "--no-worker-per-identity", "--backends", "CpuRef", "--tokens", str(file))
    service = start_service(tmp_path, *options, "--policy", POLICY)

    def connect(name: str = "alice") -> nnhal.Device:
        return stack.enter_context(nnhal.connect(service.target, transport="grpc", token=created[name][0]))

    with ExitStack() as stack:
        stack.callback(stop_service, service)
        first, second = connect(), connect()
        assert {device._connection.session[-1] for device in (first, second)} == {0, 1}
        error = refusal(connect)
        assert error.limit == "identity_sessions"
        assert "identity token:alice has 2 sessions; its quota is 2" in error.reason
        connect("bob")

        models = [device.prepare(TWICE, cache=True).result(60) for device in (first, second)]
        assert "(limit identity_prepared_models)" in refusal(lambda: first.prepare(TWICE).result(60)).reason
        memory = first._connection.create_memory(6000)
        assert refusal(lambda: second._connection.create_memory(6000)).limit == "identity_memory_bytes"
        second._connection.create_memory(3000)
        first._connection.discard(memory)
        first._connection.flush_releases()
        second._connection.create_memory(6000)

        service.process.send_signal(signal.SIGHUP)  # clients move while the old workers still have their sessions
        assert wait_until(lambda: service.logged(" reloaded"), 60)
        for model in models:
            assert model.execute([ONE, ONE])[0].tolist() == [2, 2]
        assert refusal(connect).limit == "identity_sessions"


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.nightly)]
)
def test_reloads_give_the_place_of_a_client_to_no_other_one(tmp_path: Path, workers: int) -> None:
    token, line = create_token("alice")
    file = tmp_path / "tokens"
    file.write_text(line)
    file.chmod(0o600)
    policy = '{"default": {"sessions": 1, "prepared_models": 2, "memory_bytes": 10000}}'
    options = ("--workers", str(workers), "--backends", "CpuRef", "--tokens", str(file), "--policy", policy)
    service = start_service(tmp_path, *options)
    ended = threading.Event()

    errors: list[HalError] = []

    def keep_trying() -> int:
        tried = 0
        while not ended.is_set():
            tried += 1
            try:
                nnhal.connect(service.target, transport="grpc", token=token, timeout=10).close()
            except HalError as error:
                if error.status != ErrorStatus.DEVICE_UNAVAILABLE:  # of a worker that stops
                    errors.append(error)
        return tried

    done = [0, 0]

    def keep_executing(number: int, model: nnhal.PreparedModel) -> None:
        while not ended.is_set():
            assert model.execute([ONE, ONE])[0].tolist() == [2, 2]
            done[number] += 1

    with (
        ExitStack() as stack,
        nnhal.connect(service.target, transport="grpc", token=token) as holder,
        ThreadPoolExecutor(3) as threads,
    ):
        stack.callback(stop_service, service)
        models = [holder.prepare(TWICE, cache=True).result(60) for _ in range(2)]
        work = [threads.submit(keep_executing, number, model) for number, model in enumerate(models)]
        other = threads.submit(keep_trying)
        futures: list[Future[Any]] = [*work, other]

        def all_run() -> bool:
            return not any(future.done() for future in futures)

        try:
            for number in range(1, RELOADS + 1):
                service.process.send_signal(signal.SIGHUP)
                assert wait_until(lambda: service.log.read_text().count(" reloaded") == number, 60)  # noqa: B023
                before, refused = (
                    tuple(done),
                    len(errors),
                )  # a client repeats an execution a few times, not after each of many reloads
                assert wait_until(lambda: all(map(operator.lt, before, done)) or not all_run(), 60)  # noqa: B023
                assert wait_until(lambda: len(errors) > refused or not all_run(), 60)  # noqa: B023
                assert not [future.exception() for future in futures if future.done()]
        finally:
            ended.set()
        for future in work:
            future.result(60)
        assert other.result(60) >= len(errors)
        assert {error.limit for error in errors} <= {"identity_sessions"}
        assert len(errors) >= RELOADS
        assert "(limit identity_prepared_models)" in refusal(lambda: holder.prepare(TWICE).result(60)).reason
