"""Measured times of a real service: those that the simulation uses for all hosts.

`python -m tests.benchmark.simulation.measure` measures them on this machine.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

import nnhal
import nnhal.tflite
from nnhal.types import DTYPES
from nnhal_fleet.registry import MemberRegistry
from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.members_file import MembersFile, write_members
from nnhal_service.peers.fleet.placement import Needs, place
from tests.benchmark.figures import model_path
from tests.end_to_end.support.service_process import start_service, stop_service

_MODEL = "deeplabv3_mnv2_dm05_pascal_quant"


def median_s(call: Callable[[], object], count: int) -> float:
    """Return the median duration of a call."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def print_service_times() -> None:
    """Print the times of one service with one CPU in use."""
    model = nnhal.tflite.load(model_path(_MODEL))
    operand = model.main.operands[model.main.input_indexes[0]]
    image = np.zeros(operand.dimensions, DTYPES[operand.type])
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        service = start_service(Path(folder), "--state-dir", folder)
        print(f"start of a service       {(time.perf_counter() - started) * 1e3:8.1f} ms")
        try:
            opened = median_s(lambda: nnhal.connect(service.target, timeout=60).close(), 50)
            print(f"connect and close        {opened * 1e3:8.1f} ms")
            with nnhal.connect(service.target, timeout=60) as device:
                start = time.perf_counter()
                device.prepare(model, cache=True).result(60).close()
                print(f"prepare, compiled        {(time.perf_counter() - start) * 1e3:8.1f} ms")
                loaded = median_s(lambda: device.prepare(model, cache=True).result(60).close(), 10)
                print(f"prepare, from the cache  {loaded * 1e3:8.1f} ms")
                with device.prepare(model, cache=True).result(60) as prepared:
                    print(f"execute                  {median_s(lambda: prepared.execute([image]), 100) * 1e3:8.1f} ms")
        finally:
            stop_service(service)


def member(number: int, models: int) -> Member:
    """Return a record of a member as services send it."""
    digests = frozenset(f"{(number * models + each) * 2654435761 % 2**64:016x}" for each in range(models))
    backends = {"CpuAcc": "2.1.0", "CpuRef": "0.1.0"}
    return Member(
        f"host-{number}-227daf",
        f"host-{number}",
        f"10.0.{number // 256}.{number % 256}:50051",
        "0.1.0",
        1,
        cpus=4,
        free_bytes=2**34,
        sessions=100,
        executions=3,
        devices={"nnhal": "CPU"},
        backends=backends,
        models=digests,
        known=1000,
    )


def print_table_costs(count: int, models: int) -> None:
    """Print the costs of the tables of a fleet."""
    members = tuple(member(number, models) for number in range(count))
    registry = MemberRegistry()
    for each in members:
        registry.report(each)
    random = Random(1)
    needs = Needs(frozenset([next(iter(members[0].models), "")]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "members.json"
        table = MemberTable(members[0].id, tuple(replace(each) for each in registry.members()))
        write = median_s(lambda: write_members(path, table), 10)

        def read() -> None:
            assert MembersFile(path).table() is not None

        costs = {
            "registry lists members": median_s(registry.members, 10),
            "registry makes its answer": median_s(lambda: [each.to_plain() for each in members], 10),
            "file is written": write,
            "file is read": median_s(read, 10),
            "session is placed": median_s(lambda: place(members, needs, random, here=members[0].id), 50),
        }
        print(f"{count} members with {models} models each: file of {path.stat().st_size / 2**20:.2f} MiB")
        for what, seconds in costs.items():
            print(f"  {what:28}{seconds * 1e3:8.2f} ms")


if __name__ == "__main__":
    print_service_times()
    for count_, models_ in ((10, 20), (100, 20), (1000, 20), (1000, 1000)):
        print_table_costs(count_, models_)
