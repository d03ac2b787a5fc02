"""The suites of compilation caching: their models and files, what devices of other kinds get, and their faults."""

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
from nnhal.v1 import cache_pb2, device_pb2, types_pb2
from tools.conformance.caching.files import READ_ONLY, CacheFolder
from tools.conformance.caching.models import CHAIN, KINDS, chain, mobilenet
from tools.conformance.caching.trial import prepare_from
from tools.conformance.check import NotServiceSpecific, Result, Status
from tools.conformance.run import Where, run, tasks
from tools.conformance.selection import Selection
from tools.conformance.selftest.command import selected
from tools.conformance.selftest.fault import preparation
from tools.conformance.selftest.proxy import Call, Hook, Proxy, Refusal
from tools.conformance.selftest.restartable import RestartableService
from tools.conformance.selftest.trial import clean_trial, trial
from tools.conformance.suites.nnhal.cache import stored
from tools.conformance.target import Target

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


def results(address: str, hooks: dict[str, Hook], select: tuple[str, ...]) -> dict[str, Result]:
    """What checks say of a device behind hooks, by name."""
    with Proxy(address, hooks) as proxy:
        work = tasks(SUITES, [], Selection(select))
        return {result.name: result for result in run(Where(proxy.address), work, jobs=1)}


# ---- Models ---------------------------------------------------------------------------------------------


def test_the_models_have_the_shape_of_those_that_the_checklist_names() -> None:
    large, small = map(mobilenet, KINDS)
    assert len(large.operations) == 31 and len(small.operations) < 15
    for case in (large, small):
        assert {"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "RESHAPE", "SOFTMAX"} == set(case.operations)
    assert "TENSOR_FLOAT32" in large.types and "TENSOR_QUANT8_ASYMM" not in large.types
    assert "TENSOR_QUANT8_ASYMM" in small.types and "TENSOR_FLOAT32" not in small.types
    np.testing.assert_allclose(large.outputs[0].array.sum(), 1, atol=1e-5)
    assert (small.outputs[0].atol, large.outputs[0].atol) == (3, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_chains_have_a_constant_for_each_operation(kind: str) -> None:
    for operation, result in (("MUL", 1), ("ADD", 1 + CHAIN)):
        case = chain(operation, kind)
        assert case.operations == (operation,) * CHAIN
        assert case.outputs[0].array.tolist() == [result]
        (main,) = case.graphs
        constants = [operand for operand in main["operands"] if operand["lifetime"] == "CONSTANT_COPY"]
        assert len(constants) == CHAIN + 1


# ---- Files ----------------------------------------------------------------------------------------------


def test_files_are_changed_where_it_is_asked(target: Target) -> None:
    data = os.urandom(1_200_000)  # three messages
    with CacheFolder(target) as folder:
        folder.put("file", data)
        assert folder.content("file") == data and folder.size("file") == len(data)
        folder.flip("file", 8 * 700_000 + 3)
        changed = folder.content("file")
        assert [i for i in range(len(data)) if changed[i] != data[i]] == [700_000]
        assert changed[700_000] == data[700_000] ^ 8
        folder.truncate("file", 10)
        folder.put("file", b"end", 10)
        assert folder.content("file") == data[:10] + b"end"


def test_files_are_private_to_a_check_and_deleted_after_it(target: Target) -> None:
    folder, other = CacheFolder(target), CacheFolder(target)
    with folder, other:
        folder.put("file", b"mine")
        assert other.size("file") == 0
    with folder:
        assert folder.size("file") == 0


def test_a_call_that_fails_is_told(target: Target) -> None:
    refused = pytest.raises(NotServiceSpecific, match=r"Cache.Write: INVALID_ARGUMENT")
    with CacheFolder(target) as folder, folder.opened(["file"], [], {"file": READ_ONLY}) as files, refused:
        folder.write(files.model[0], b"x")


def test_entries_of_the_store_are_cleared(target: Target) -> None:
    with stored(target) as cache:
        entry = cache_pb2.ListCacheRequest(session=target.session)
        model = prepare_into_store(target, cache)
        listed = target.attempt("Cache", "List", entry).entries
        assert model and cache.token in [one.token for one in listed]
    assert cache.token not in [one.token for one in target.attempt("Cache", "List", entry).entries]
    assert not prepare_from(target, cache).model


def prepare_into_store(target: Target, cache: types_pb2.CompilationCache) -> bytes:
    config = types_pb2.PrepareModelConfig(preference=1, priority=1, cache=cache)  # type: ignore[arg-type]
    return target.prepare_with_config(chain("ADD", "float32").model(), config).model


# ---- Devices of other kinds -----------------------------------------------------------------------------


def test_a_device_that_caches_nothing(service: RestartableService) -> None:
    def none_needed(call: Call, request: Any) -> Any:
        return types_pb2.NumberOfCacheFiles()

    def general_failure(call: Call, request: Any) -> Any:
        failure: Any = ErrorStatus.GENERAL_FAILURE
        return preparation(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="nothing is cached"))

    hooks: dict[str, Hook] = {
        "Device.GetNumberOfCacheFilesNeeded": none_needed,
        "Device.PrepareModelFromCache": general_failure,
    }
    select = ("CACHE-1[0136]*", "CACHE-17*", "CACHE-31*", "CACHESEC-01*")
    found = results(service.target, hooks, select)
    assert "CACHE-10" in found["CACHE-10 nothing is cached float32"].checks
    assert "CACHE-10" in found["CACHE-13 offsets float32"].checks
    states = {name: (result.status, result.check) for name, result in found.items() if name.endswith("float32")}
    assert states == {
        "CACHE-10 nothing is cached float32": (Status.PASSED, ""),
        "CACHE-11 plain float32": (Status.SKIPPED, "X4"),
        "CACHE-13 offsets float32": (Status.PASSED, ""),
        "CACHE-16 saving with a model file too many float32": (Status.PASSED, ""),
        "CACHE-17 saving with a model file too few float32": (Status.SKIPPED, "X4"),
        "CACHE-31 files of another model float32": (Status.SKIPPED, "X4"),
        "CACHESEC-01 float32": (Status.SKIPPED, "X4"),
    }


def test_a_device_that_answers_wrong_files_with_general_failure(service: RestartableService) -> None:
    def general_failure(call: Call, request: Any) -> Any:
        failure: Any = ErrorStatus.GENERAL_FAILURE
        return preparation(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="files"))

    found = results(service.target, {"Device.PrepareModelFromCache": general_failure}, ("CACHE-20*",))
    assert len(found) == len(KINDS)
    for result in found.values():
        assert result.status is Status.PASSED and {"CACHE-08", "CACHE-09"} <= set(result.checks)


def test_a_device_that_saved_nothing_is_skipped(service: RestartableService) -> None:
    def general_failure(call: Call, request: Any) -> Any:
        failure: Any = ErrorStatus.GENERAL_FAILURE
        return preparation(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="nothing"))

    found = results(service.target, {"Device.PrepareModelFromCache": general_failure}, ("CACHE-1[123]*",))
    assert {(result.status, result.check) for result in found.values()} == {(Status.SKIPPED, "X6")}


def test_a_device_that_does_not_support_the_model_is_skipped(service: RestartableService) -> None:
    def unsupported(call: Call, request: Any) -> Any:
        response = call.forward(request)
        response.supported[0] = False
        return response

    found = results(service.target, {"Device.GetSupportedOperations": unsupported}, ("CACHE-11*", "CACHESEC-05*"))
    assert {(result.status, result.check) for result in found.values()} == {(Status.SKIPPED, "X5")}


def test_a_device_without_a_cache_is_unsupported(service: RestartableService) -> None:
    def unimplemented(call: Call, request: Any) -> Any:
        raise Refusal(grpc.StatusCode.UNIMPLEMENTED)

    hooks: dict[str, Hook] = {"Cache.*": unimplemented, "Device.PrepareModelFromCache": unimplemented}
    found = results(service.target, hooks, ("CACHE-11*", "CACHESEC-0*"))
    assert {result.status for result in found.values()} == {Status.UNSUPPORTED}


# ---- Faults ---------------------------------------------------------------------------------------------


@pytest.fixture
def where(service: RestartableService) -> Where:
    return Where(service.target, restart_command=service.restart_command)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_by_each_of_its_ids(where: Where, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    (fault,) = selected([name])
    verdict = trial(where, fault)
    assert set(fault.checks) <= verdict.failed.keys() and verdict.missed == ()
    assert "Traceback" not in capfd.readouterr().err  # the fault itself works


def test_the_clean_proxy_trips_none(where: Where) -> None:
    chosen = [fault for fault in selected(FAULTS) if fault.restarts or "CACHE-24" in fault.checks]
    assert clean_trial(where, chosen).failed == {}


# ---- Restarts -------------------------------------------------------------------------------------------


def test_a_restart_is_another_service_with_the_same_cache() -> None:
    with closing(RestartableService()) as service:
        folder = Path(service.target.removeprefix("unix:")).parent
        before = os.readlink(folder / "socket")
        with Target(service.target) as target:
            cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes(32))
            assert prepare_into_store(target, cache)
        subprocess.run(service.restart_command, shell=True, check=True, timeout=60)
        assert os.readlink(folder / "socket") != before and not os.path.exists(before)
        with Target(service.target) as target:
            assert prepare_from(target, cache).model
        socket = os.readlink(folder / "socket")
    assert not folder.exists() and not os.path.exists(socket)
    assert subprocess.run(service.restart_command, shell=True, capture_output=True, check=False).returncode


# ---- A device that is wrong inside ----------------------------------------------------------------------


def test_a_section_handed_to_the_wrong_backend_inside_the_device() -> None:
    command = [sys.executable, "-m", "tests.tools.conformance.wrong_backend", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("listening on ").strip()
            work = tasks(("nnhal",), [], Selection(("NNHAL-28*",)))
            found = {result.name: result for result in run(Where(address), work, jobs=1)}
        finally:
            process.terminate()
    several = found["NNHAL-28 several backends float32"]
    assert (several.status, several.check) == (Status.FAILED, "NNHAL-28"), several
