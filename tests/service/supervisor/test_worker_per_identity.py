"""A real service whose clients have workers of their own."""

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.errors import HalError
from nnhal_service.identity.tokens import create_token
from nnhal_service.supervisor.scoreboard import MAX_WORKERS
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids
from tests.service.supervisor.hostile_service import VALUES, relu_model, start_hostile

pytestmark = pytest.mark.slow

NAMES = ("alice", "bob", "carol")


class Tokens:
    """Tokens of some names, and the option that lets a service accept them."""

    def __init__(self, folder: Path) -> None:
        created = {name: create_token(name) for name in NAMES}
        file = folder / "tokens"
        file.write_text("\n".join(line for _, line in created.values()))
        file.chmod(0o600)
        self.option = ("--tokens", str(file))
        self.of = {name: token for name, (token, _) in created.items()}


def slot_of(device: nnhal.Device) -> int:
    """Return the number of the worker of a session, which its token names."""
    return device._connection.session[-1]


def tries_to_connect(service: Service, token: str, stack: ExitStack) -> bool:
    try:
        stack.enter_context(nnhal.connect(service.target, token=token))
    except HalError as error:
        assert error.limit == "workers", error
        return False
    return True


@pytest.mark.parametrize("listen", ["tcp", "unix"])
def test_identities_do_not_share_a_worker(tmp_path: Path, listen: str) -> None:
    tokens = Tokens(tmp_path)
    options = ("--listen", f"unix:{tmp_path}/s") if listen == "unix" else ()
    service = start_service(tmp_path, "--private-workers", "2", *tokens.option, *options)
    with ExitStack() as stack:
        stack.callback(stop_service, service)
        with (
            nnhal.connect(service.target, token=tokens.of["alice"]) as first,
            nnhal.connect(service.target, token=tokens.of["alice"]) as second,
            nnhal.connect(service.target, token=tokens.of["bob"]) as bob,
            nnhal.connect(service.target, token=tokens.of["carol"]) as carol,
        ):
            assert slot_of(first) == slot_of(second) >= MAX_WORKERS and slot_of(bob) >= MAX_WORKERS
            assert slot_of(first) != slot_of(bob)
            assert slot_of(carol) == 0, "there are no more: she shares the worker of all"
            np.testing.assert_array_equal(bob.prepare(relu_model()).result(60).execute([VALUES])[0], VALUES)
        # those of alice and bob end, so that nothing of them is left in memory
        assert wait_until(lambda: service.log.read_text().count("worker-stopped") == 2)


def test_strict_service_refuses_when_all_are_in_use(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    service = start_service(tmp_path, "--worker-per-identity", "--private-workers", "2", *tokens.option)
    with ExitStack() as stack:
        stack.callback(stop_service, service)
        with nnhal.connect(service.target, token=tokens.of["alice"]), ExitStack() as others:
            assert tries_to_connect(service, tokens.of["bob"], others)
            assert not tries_to_connect(service, tokens.of["carol"], others)
        assert wait_until(lambda: tries_to_connect(service, tokens.of["carol"], stack))


def crash(device: nnhal.Device, behavior: Path, seed: int) -> None:
    """Crash the worker of a device with a model that is not in quarantine."""
    with device.prepare(relu_model(seed)).result(60) as prepared:
        behavior.write_text("execute crash")
        with suppress(nnhal.HalError):  # the client repeats it, perhaps without the backend that crashed
            prepared.execute([VALUES])
        behavior.write_text("")


def execute_safely(devices: Sequence[nnhal.Device]) -> None:
    for device in devices:
        np.testing.assert_array_equal(device.prepare(relu_model(99)).result(60).execute([VALUES])[0], VALUES)


def test_a_host_that_crashed_a_worker_gets_one_for_each_session(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior)
    with nnhal.connect(service.target) as attacker, nnhal.connect(service.target) as victim:
        assert slot_of(attacker) == slot_of(victim) == 0
        crash(attacker, behavior, 3)
        execute_safely([victim, attacker])
        assert slot_of(victim) != slot_of(attacker)
        victims = slot_of(victim)
        with victim.prepare(relu_model(4)).result(60) as prepared:
            for seed in range(5, 8):
                crash(attacker, behavior, seed)
                np.testing.assert_array_equal(prepared.execute([VALUES])[0], VALUES)
            with nnhal.connect(service.target) as newcomer:
                execute_safely([newcomer])
                assert slot_of(newcomer) >= MAX_WORKERS
        assert slot_of(victim) == victims
    assert stop_service(service) == 0
    assert service.log.read_text().count("offender") == 4


def test_an_identity_that_crashes_again_waits_and_others_do_not(tmp_path: Path, behavior: Path) -> None:
    tokens = Tokens(tmp_path)
    service = start_hostile(tmp_path, behavior, "--no-worker-per-identity", *tokens.option)
    with (
        nnhal.connect(service.target, token=tokens.of["alice"]) as alice,
        nnhal.connect(service.target, token=tokens.of["bob"]) as bob,
    ):
        assert slot_of(alice) == slot_of(bob) == 0
        crash(alice, behavior, 3)
        execute_safely([alice, bob])
        assert slot_of(alice) >= MAX_WORKERS and slot_of(bob) == 0
        niceness = {os.getpriority(os.PRIO_PROCESS, pid) for pid in worker_pids(service.process.pid)}
        assert niceness == {os.getpriority(os.PRIO_PROCESS, 0) + each for each in (0, 5)}
        crash(alice, behavior, 4)
        with pytest.raises(HalError, match="it can connect again in") as refused:
            nnhal.connect(service.target, token=tokens.of["alice"])
        assert refused.value.limit == "workers"
        execute_safely([bob])
        assert slot_of(bob) == 0
    assert stop_service(service) == 0
