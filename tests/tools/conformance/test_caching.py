"""Suites of compilation caching: models, files, results of devices of other kinds, and detection of faults."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.caching.files import READ_ONLY, CacheFolder
from nnhal_tools.conformance.caching.models import CHAIN_LENGTH, NUMBER_KINDS, mobilenet, operation_chain
from nnhal_tools.conformance.caching.round_trip import prepare_from_cache
from nnhal_tools.conformance.check import NotServiceSpecific, Result, Status
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.runner import TargetConfig, plan_tasks, run_tasks
from nnhal_tools.conformance.selection import Selection
from nnhal_tools.conformance.suites.nnhal.cache import cleared_entry
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.tools.conformance.selftest.command import select_faults
from tests.tools.conformance.selftest.fault import preparation_events
from tests.tools.conformance.selftest.proxy import Hook, InjectedError, Proxy, ProxyCall
from tests.tools.conformance.selftest.restartable import RestartableService
from tests.tools.conformance.selftest.trial import run_clean_trial, run_trial

ROOT = Path(__file__).resolve().parents[3]

SUITES = ("cache", "cachesec")

FAULTS = (
    "cache-file-not-truncated",
    "tampered-model-cache-accepted",
    "token-compared-by-its-length",
    "entries-only-in-memory",
    "section-handed-to-the-wrong-backend",
    "priority-of-a-cached-model-forgotten",
    "wrong-number-of-files-accepted",
    "read-only-file-accepted",
)


@pytest.fixture(scope="module")
def service() -> Iterator[RestartableService]:
    with closing(RestartableService()) as service:
        yield service


@pytest.fixture
def target(service: RestartableService) -> Iterator[Target]:
    with Target(service.target) as target:
        yield target


def run_with_hooks(address: str, hooks: dict[str, Hook], select: tuple[str, ...]) -> dict[str, Result]:
    """Run checks against a device behind a proxy with hooks, and return the results by name."""
    with Proxy(address, hooks) as proxy:
        work = plan_tasks(SUITES, [], Selection(select))
        return {result.name: result for result in run_tasks(TargetConfig(proxy.address), work, jobs=1)}


# ---- Models ---------------------------------------------------------------------------------------------


def test_mobilenets_resemble_those_of_the_checklist() -> None:
    large, small = map(mobilenet, NUMBER_KINDS)
    assert len(large.operations) == 31 and len(small.operations) < 15
    for case in (large, small):
        assert {"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "RESHAPE", "SOFTMAX"} == set(case.operations)
    assert "TENSOR_FLOAT32" in large.operand_types and "TENSOR_QUANT8_ASYMM" not in large.operand_types
    assert "TENSOR_QUANT8_ASYMM" in small.operand_types and "TENSOR_FLOAT32" not in small.operand_types
    np.testing.assert_allclose(large.outputs[0].array.sum(), 1, atol=1e-5)
    assert (small.outputs[0].atol, large.outputs[0].atol) == (3, 1e-5)


@pytest.mark.parametrize("kind", NUMBER_KINDS)
def test_chains_have_a_constant_for_each_operation(kind: str) -> None:
    for operation, result in (("MUL", 1), ("ADD", 1 + CHAIN_LENGTH)):
        case = operation_chain(operation, kind)
        assert case.operations == (operation,) * CHAIN_LENGTH
        assert case.outputs[0].array.tolist() == [result]
        (main,) = case.graphs
        constants = [operand for operand in main["operands"] if operand["lifetime"] == "CONSTANT_COPY"]
        assert len(constants) == CHAIN_LENGTH + 1


# ---- Files ----------------------------------------------------------------------------------------------


def test_files_can_be_changed(target: Target) -> None:
    data = os.urandom(1_200_000)  # three messages
    with CacheFolder(target) as folder:
        folder.write_file("file", data)
        assert folder.read_file("file") == data and folder.size("file") == len(data)
        folder.flip_bit("file", 8 * 700_000 + 3)
        changed = folder.read_file("file")
        assert [i for i in range(len(data)) if changed[i] != data[i]] == [700_000]
        assert changed[700_000] == data[700_000] ^ 8
        folder.truncate("file", 10)
        folder.write_file("file", b"end", 10)
        assert folder.read_file("file") == data[:10] + b"end"


def test_files_are_private_and_deleted_at_the_end(target: Target) -> None:
    folder, other = CacheFolder(target), CacheFolder(target)
    with folder, other:
        folder.write_file("file", b"mine")
        assert other.size("file") == 0
    with folder:
        assert folder.size("file") == 0


def test_failed_call_is_raised(target: Target) -> None:
    rejected = pytest.raises(NotServiceSpecific, match=r"Cache.Write: INVALID_ARGUMENT")
    with CacheFolder(target) as folder, folder.open_files(["file"], [], {"file": READ_ONLY}) as files, rejected:
        folder.write(files.model[0], b"x")


def test_entries_of_the_store_are_cleared(target: Target) -> None:
    with cleared_entry(target) as cache:
        model = prepare_into_store(target, cache)
        listed = target.require("Cache.List").entries
        assert model and cache.token in [entry.token for entry in listed]
    assert cache.token not in [entry.token for entry in target.require("Cache.List").entries]
    assert not prepare_from_cache(target, cache).model


def prepare_into_store(target: Target, cache: types_pb2.CompilationCache) -> bytes:
    config = types_pb2.PrepareModelConfig(preference=1, priority=1, cache=cache)  # type: ignore[arg-type]
    return target.prepare_with_config(operation_chain("ADD", "float32").model(), config).model


# ---- Devices of other kinds -----------------------------------------------------------------------------


def test_device_without_cache_files(service: RestartableService) -> None:
    def none_needed(call: ProxyCall, request: Any) -> Any:
        return types_pb2.NumberOfCacheFiles()

    def general_failure(call: ProxyCall, request: Any) -> Any:
        failure: Any = ErrorStatus.GENERAL_FAILURE
        return preparation_events(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="nothing is cached"))

    hooks: dict[str, Hook] = {
        "Device.GetNumberOfCacheFilesNeeded": none_needed,
        "Device.PrepareModelFromCache": general_failure,
    }
    select = ("CACHE-1[0136]*", "CACHE-17*", "CACHE-31*", "CACHESEC-01*")
    results = run_with_hooks(service.target, hooks, select)
    assert "CACHE-10" in results["CACHE-10 no files needed float32"].checks
    assert "CACHE-10" in results["CACHE-13 files at offsets float32"].checks
    states = {name: (result.status, result.check) for name, result in results.items() if name.endswith("float32")}
    assert states == {
        "CACHE-10 no files needed float32": (Status.PASSED, ""),
        "CACHE-11 saved model float32": (Status.SKIPPED, "X4"),
        "CACHE-13 files at offsets float32": (Status.PASSED, ""),
        "CACHE-16 saving with an extra model file float32": (Status.PASSED, ""),
        "CACHE-17 saving with a missing model file float32": (Status.SKIPPED, "X4"),
        "CACHE-31 files of another model float32": (Status.SKIPPED, "X4"),
        "CACHESEC-01 float32": (Status.SKIPPED, "X4"),
    }


def test_service_that_caches_nothing(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--no-cache", "--backends", "CpuRef")
    try:
        select = ("CACHE-1[068]*float32", "CACHE-2[02]*float32", "NNHAL-2[89]*", "NNHAL-3[013]*")
        work = plan_tasks(("cache", "nnhal"), [], Selection(select))
        results = {result.name: result for result in run_tasks(TargetConfig(service.target), work, jobs=1)}
    finally:
        assert stop_service(service) == 0
    assert {result.status for result in results.values()} == {Status.PASSED, Status.SKIPPED}
    assert results["CACHE-10 no files needed float32"].status == Status.PASSED
    assert results["CACHE-16 saving with an extra model file float32"].check == "X4"
    assert results["NNHAL-28 store"].check == "X4"


def test_device_that_rejects_wrong_files_with_general_failure(service: RestartableService) -> None:
    def general_failure(call: ProxyCall, request: Any) -> Any:
        failure: Any = ErrorStatus.GENERAL_FAILURE
        return preparation_events(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="files"))

    results = run_with_hooks(service.target, {"Device.PrepareModelFromCache": general_failure}, ("CACHE-20*",))
    assert len(results) == len(NUMBER_KINDS)
    for result in results.values():
        assert result.status is Status.PASSED and {"CACHE-08", "CACHE-09"} <= set(result.checks)


def test_device_that_saves_nothing_is_skipped(service: RestartableService) -> None:
    def general_failure(call: ProxyCall, request: Any) -> Any:
        failure: Any = ErrorStatus.GENERAL_FAILURE
        return preparation_events(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="nothing"))

    results = run_with_hooks(service.target, {"Device.PrepareModelFromCache": general_failure}, ("CACHE-1[123]*",))
    assert {(result.status, result.check) for result in results.values()} == {(Status.SKIPPED, "X6")}


def test_device_that_does_not_support_the_model_is_skipped(service: RestartableService) -> None:
    def unsupported(call: ProxyCall, request: Any) -> Any:
        response = call.forward(request)
        response.supported[0] = False
        return response

    results = run_with_hooks(
        service.target, {"Device.GetSupportedOperations": unsupported}, ("CACHE-11*", "CACHESEC-05*")
    )
    assert {(result.status, result.check) for result in results.values()} == {(Status.SKIPPED, "X5")}


def test_device_without_cache_calls_is_unsupported(service: RestartableService) -> None:
    def unimplemented(call: ProxyCall, request: Any) -> Any:
        raise InjectedError(grpc.StatusCode.UNIMPLEMENTED)

    hooks: dict[str, Hook] = {"Cache.*": unimplemented, "Device.PrepareModelFromCache": unimplemented}
    results = run_with_hooks(service.target, hooks, ("CACHE-11*", "CACHESEC-0*"))
    assert {result.status for result in results.values()} == {Status.UNSUPPORTED}


# ---- Faults ---------------------------------------------------------------------------------------------


@pytest.fixture
def config(service: RestartableService) -> TargetConfig:
    return TargetConfig(service.target, control=service.control)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_fails_each_of_its_ids(config: TargetConfig, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    (fault,) = select_faults([name])
    verdict = run_trial(config, fault)
    assert set(fault.checks) <= verdict.failed.keys() and verdict.missed == ()
    assert "Traceback" not in capfd.readouterr().err  # the fault itself works


def test_clean_proxy_fails_no_check(config: TargetConfig) -> None:
    chosen = [fault for fault in select_faults(FAULTS) if fault.needs or "CACHE-24" in fault.checks]
    assert run_clean_trial(config, chosen).failed == {}


# ---- Restarts -------------------------------------------------------------------------------------------


def test_restart_keeps_the_cache() -> None:
    with closing(RestartableService()) as service:
        folder = Path(service.target.removeprefix("unix:")).parent
        before = os.readlink(folder / "socket")
        with Target(service.target) as target:
            cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes(32))
            assert prepare_into_store(target, cache)
        subprocess.run(service.control.restart_command, shell=True, check=True, timeout=60)
        assert os.readlink(folder / "socket") != before and not os.path.exists(before)
        with Target(service.target) as target:
            assert prepare_from_cache(target, cache).model
        socket = os.readlink(folder / "socket")
    assert not folder.exists() and not os.path.exists(socket)
    assert subprocess.run(service.control.restart_command, shell=True, capture_output=True, check=False).returncode


# ---- Defects of a device --------------------------------------------------------------------------------


def test_section_for_the_wrong_backend_is_detected() -> None:
    command = [sys.executable, "-m", "tests.tools.conformance.wrong_backend", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("listening on ").strip()
            work = plan_tasks(("nnhal",), [], Selection(("NNHAL-28*",)))
            results = {result.name: result for result in run_tasks(TargetConfig(address), work, jobs=1)}
        finally:
            process.terminate()
    several = results["NNHAL-28 several backends float32"]
    assert (several.status, several.check) == (Status.FAILED, "NNHAL-28"), several
