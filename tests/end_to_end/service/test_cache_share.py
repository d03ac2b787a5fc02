"""Two services with caches of their own and one share, in processes of their own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal.types import CacheOutcome, CacheState
from tests.concurrency import wait_until
from tests.end_to_end.support.models import prepare_chain
from tests.end_to_end.support.service_process import Service, has_ended, helper_pid, start_service, stop_service


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


@pytest.fixture
def services(tmp_path: Path, key: Path) -> Iterator[list[Service]]:
    running = list[Service]()
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            running.append(start(tmp_path, key, name))
        yield running
    finally:
        for service in running:
            stop_service(service)


def start(tmp_path: Path, key: Path, name: str) -> Service:
    options = ["--cache-share", str(tmp_path / "share"), "--cache-key-file", str(key), "--backends", "CpuRef"]
    return start_service(tmp_path / name, *options, NNHAL_SANDBOX_PATHS="[]")


def objects(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "share").rglob("*") if path.is_file()]


def test_model_compiled_on_one_service_is_a_hit_on_the_other(tmp_path: Path, services: list[Service]) -> None:
    first, second = services
    assert prepare_chain(first.target, 1).state == CacheState.SAVED
    assert wait_until(lambda: len(objects(tmp_path)) == 1)
    assert prepare_chain(second.target, 1) == CacheOutcome(CacheState.HIT)
    # the process that moves the bytes may die at any time
    killed = helper_pid(first, "nnhal-share")
    os.kill(killed, signal.SIGKILL)
    assert wait_until(lambda: first.logged("share-died") and has_ended(killed))
    assert prepare_chain(first.target, 2).state == CacheState.SAVED
    assert wait_until(lambda: len(objects(tmp_path)) == 2)
    assert prepare_chain(second.target, 2).state == CacheState.HIT
    # what waits is written before a service ends
    assert prepare_chain(first.target, 3).state == CacheState.SAVED
    last = helper_pid(first, "nnhal-share")
    services.remove(first)
    assert stop_service(first) == 0
    assert has_ended(last) and len(objects(tmp_path)) == 3
    assert prepare_chain(second.target, 3).state == CacheState.HIT
    assert not second.logged("WARNING") and not second.logged("ERROR")
