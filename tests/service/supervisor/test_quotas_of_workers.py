"""Quotas of an identity in a real service with two workers: they count for the service."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.errors import HalError
from nnhal_service.identity.tokens import create_token
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE
from tests.end_to_end.support.service_process import start_service, stop_service

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
