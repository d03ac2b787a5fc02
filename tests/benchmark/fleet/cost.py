"""Cost of calls through a fleet: `python -m tests.benchmark.fleet.cost`, which does not need Ray.

A client that a member has sent to another one calls it in turns with one that was given its address, so that the ratio
of both shows what the fleet costs after the first call. Then a model is prepared in turns by a host that compiles it,
and by one that finds it in the share.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np

import nnhal
import nnhal.tflite
from nnhal.types import CacheState, Model
from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.members_file import write_members
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import elapsed_ms
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.service_process import Service, start_service, stop_service

ROUNDS, QUICK_ROUNDS = 61, 15
_CALLS = 200
_MOST = 1.02
"""Time of a call through the fleet, in multiples of that of a direct call."""
_WARM_ROUNDS = 11
_MODELS = ("mobilenet_v2_1.0_224_quant", "deeplabv3_mnv2_dm05_pascal_quant")


@contextmanager
def running(folder: Path, name: str, *options: str) -> Iterator[Service]:
    """Run a service with a folder of its own."""
    (folder / name).mkdir()
    service = start_service(folder / name, "--log-level", "warning", *options, NNHAL_SANDBOX_PATHS="[]")
    try:
        yield service
    finally:
        stop_service(service)


@contextmanager
def pair(folder: Path) -> Iterator[tuple[Service, Service]]:
    """Run two members of a fleet, the first of which sends its clients to the second."""
    files = [folder / f"members-{name}" / "members.json" for name in "ab"]
    for file in files:
        file.parent.mkdir()  # the sandbox of a service opens folders that exist
    a = running(folder, "a", "--fleet-members", str(files[0]))
    b = running(folder, "b", "--fleet-members", str(files[1]))
    with a as first, b as second:
        busy = Member("a", "a", first.target, sessions=1000, free_bytes=2**30)
        members = busy, replace(busy, id="b", host="b", address=second.target, sessions=0)
        for file, here in zip(files, "ab", strict=True):
            write_members(file, MemberTable(here, members))
        yield first, second


def compare_calls(rounds: int) -> Iterator[Figure]:
    """Yield, for each transport, the times of direct calls and the ratio of those through the fleet."""
    x = np.ones(16, np.float32)
    for transport in ("grpc", "auto"):
        with (
            tempfile.TemporaryDirectory() as folder,
            pair(Path(folder)) as (first, second),
            nnhal.connect(second.target, transport=transport, timeout=60) as direct,
            nnhal.connect(first.target, transport=transport, timeout=60) as sent,
            nnhal.Fleet(first.target, transport=transport, timeout=60).prepare(ADD) as replicated,
        ):
            used = direct._connection.member, sent._connection.member
            assert used == ("b", "b"), f"they use {used}"
            models = [device.prepare(ADD).result(60) for device in (direct, sent)]
            calls = [lambda model=model: model.execute([x, x]) for model in (*models, replicated)]
            yield from _ratios(calls, rounds, "TCP" if transport == "grpc" else "shared memory")


def _ratios(calls: Sequence[Callable[[], object]], rounds: int, transport: str) -> Iterator[Figure]:
    times = []
    orders = list(permutations(range(len(calls))))  # a call may cost more after another one
    for _ in range(rounds):
        durations: list[list[float]] = [[] for _ in calls]
        for number in range(_CALLS):
            for index in orders[number % len(orders)]:
                durations[index].append(elapsed_ms(calls[index])[0] * 1e3)
        times.append([statistics.median(each) for each in durations])
    direct, sent, replicated = (list(column) for column in zip(*times[1:], strict=True))
    yield Figure(f"direct call, {transport}", direct, "us")
    ratios = [mine / base for mine, base in zip(sent, direct, strict=True)]
    yield Figure(f"call after a redirect, in direct calls, {transport}", ratios, "", _MOST)
    ratios = [mine / base for mine, base in zip(replicated, direct, strict=True)]
    yield Figure(f"call of a model of `Fleet.prepare`, in direct calls, {transport}", ratios, "")


def compare_preparations() -> Iterator[Figure]:
    """Yield, for each model, the time of a preparation that compiles, and of one that finds the model in the share."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        key = folder / "fleet.key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        share = "--cache-share", str(folder / "share"), "--cache-key-file", str(key)
        saver, finder, compiler = (
            running(folder, name, *options) for name, options in (("s", share), ("f", share), ("c", ()))
        )
        with saver as first, finder as second, compiler as alone:
            for name in _MODELS:
                model = nnhal.tflite.load(model_path(name))
                expected = _objects(folder) + 1
                _prepare(first, model, CacheState.SAVED)
                _await_objects(folder, expected)
                times = []
                for _ in range(_WARM_ROUNDS):
                    _clear(second)
                    _clear(alone)
                    hit = _prepare(second, model, CacheState.HIT)
                    times.append((_prepare(alone, model, CacheState.SAVED), hit))
                compiled, found = (list(column) for column in zip(*times, strict=True))
                yield Figure(f"{name}, compiled and saved", compiled, "ms")
                yield Figure(f"{name}, found in the share", found, "ms")
                print(f"{name}: {statistics.median(compiled) / statistics.median(found):.1f} times as fast")


def _prepare(service: Service, model: Model, expected: CacheState) -> float:
    """Return how long a preparation takes, in milliseconds."""
    with nnhal.connect(service.target, timeout=60) as device:
        ms, prepared = elapsed_ms(lambda: device.prepare(model, cache=True).result(60))
        assert prepared.cache.state == expected, prepared.cache
        return ms


def _objects(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "share").rglob("*"))


def _await_objects(folder: Path, count: int) -> None:
    assert wait_until(lambda: _objects(folder) == count, 60), "the entry was not written to the share"


def _clear(service: Service) -> None:
    """Remove the local entries of a service."""
    command = [sys.executable, "-m", "nnhal_tools", "cache", "clear", "--cache-dir", str(service.log.parent / "cache")]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="make few rounds")
    rounds = QUICK_ROUNDS if parser.parse_args().quick else ROUNDS
    show("calls through a fleet", lambda: compare_calls(rounds))
    show("preparations with a share", compare_preparations)


if __name__ == "__main__":
    main()
