"""Services with caches of their own and a share on a real S3 server. Needs moto[server] and s3fs."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal.types import CacheOutcome, CacheState
from nnhal_service.peers.cache_share.fsspec_store import FsspecStore
from tests.concurrency import run_concurrently, wait_until
from tests.end_to_end.service.s3_server import S3Server, running_s3
from tests.end_to_end.support.models import prepare_chain
from tests.end_to_end.support.service_process import Service, start_service, stop_service

for _package in ("s3fs", "moto", "flask"):
    pytest.importorskip(_package, reason="needs moto[server] and s3fs")
pytestmark = pytest.mark.nightly

_URL = "s3://bucket/nnhal"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with running_s3(tmp_path / "s3.log") as server:
        yield server


@pytest.fixture
def services(tmp_path: Path, s3: S3Server) -> Iterator[list[Service]]:
    key = tmp_path / "fleet.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    options = ["--cache-share", _URL, "--cache-key-file", str(key), "--backends", "CpuRef"]
    running = list[Service]()
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            running.append(start_service(tmp_path / name, *options, **s3.environment))
        yield running
    finally:
        for service in running:
            stop_service(service)


def objects(s3: S3Server) -> list[str]:
    """Return the names of the objects."""
    return sorted(s3.files().find("bucket/nnhal"))


def save(s3: S3Server, service: Service, length: int) -> str:
    """Prepare a model, and return the name of its object, once it has been written."""
    before = set(objects(s3))
    assert prepare_chain(service.target, length).state == CacheState.SAVED
    assert wait_until(lambda: len(objects(s3)) > len(before), 60)
    (name,) = set(objects(s3)) - before
    return name


def test_an_entry_is_a_hit_elsewhere_unless_it_was_changed(s3: S3Server, services: list[Service]) -> None:
    first, second = services
    files = s3.files()
    names = [save(s3, first, length) for length in (1, 2, 3)]
    assert prepare_chain(second.target, 1) == CacheOutcome(CacheState.HIT)

    value = files.cat_file(names[1])
    tampered = value[:-1] + bytes([value[-1] ^ 1])
    files.pipe_file(names[1], tampered)
    refused = prepare_chain(second.target, 2)
    assert refused.state == CacheState.SAVED and "the entry in the share was refused" in refused.reason
    assert second.logged("share-entry-refused")
    assert wait_until(lambda: files.cat_file(names[1]) != tampered, 60), "it is replaced"

    files.pipe_file(names[2], files.cat_file(names[0]))
    refused = prepare_chain(second.target, 3)
    assert refused.state == CacheState.SAVED
    assert "it was saved for another token, identity, version or CPU" in refused.reason


def test_the_store_may_vanish_at_any_time(s3: S3Server, services: list[Service]) -> None:
    first, second = services
    save(s3, first, 1)
    lengths = itertools.count(2)
    stop = threading.Event()
    outcomes: list[CacheOutcome] = []

    def work() -> None:
        while not stop.is_set():
            outcomes.append(prepare_chain(first.target, next(lengths)))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert wait_until(lambda: len(objects(s3)) > 2, 60)
        s3.signal(signal.SIGSTOP)  # requests hang, and then break
        assert prepare_chain(second.target, 1).state == CacheState.SAVED
        s3.close()
        done = len(outcomes)
        assert wait_until(lambda: len(outcomes) > done + 2, 60)
        assert prepare_chain(second.target, 1).state == CacheState.HIT, "it is in the local cache"
        assert wait_until(lambda: first.logged("share-unavailable"), 60)
        s3.start()
        s3.files()
        assert wait_until(lambda: first.logged("share-available") and len(objects(s3)) > 0, 120)
    finally:
        stop.set()
        worker.join()
    assert {outcome.state for outcome in outcomes} == {CacheState.SAVED}


def test_conditional_writes_are_honoured(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    import fsspec.config

    fsspec.config.set_conf_env(fsspec.config.conf)
    try:
        store = FsspecStore(_URL, 60.0)
        created: list[int] = []

        def create(number: int) -> None:
            if store.create("entry", bytes([number]) * 2**20):
                created.append(number)

        run_concurrently(8, create)
        (winner,) = created
        assert store.read("entry", 0, 2**20) == bytes([winner]) * 2**20
        assert not store.create("entry", b"other")
        store.replace("entry", b"other")
        assert store.read("entry", 0, 5) == b"other"
    finally:
        fsspec.config.conf.pop("s3", None)
