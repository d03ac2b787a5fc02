"""Test vectors through the library: the path NDK of `nnhal conformance`."""

import base64
import logging
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from nnhal_tools.cli import app
from nnhal_tools.conformance.check import Status
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.ndk.execution import WAYS, buffer_arguments, execute
from nnhal_tools.conformance.ndk.model import LibraryModel
from nnhal_tools.conformance.paths import NDK, NDK_BUFFER
from nnhal_tools.conformance.registry import VECTOR_CHECKS
from nnhal_tools.conformance.suites import load
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import builtin_case
from tests.end_to_end.support.service_process import Service


@pytest.fixture(scope="module")
def target(library: NdkLibrary, ndk_service: Service) -> Iterator[Target]:
    """Yield a session that runs vectors on the path NDK only."""
    load()
    with Target(ndk_service.target, paths=(NDK,), ndk=library) as target:
        yield target


@pytest.mark.parametrize("case", builtin.cases(), ids=lambda case: str(case.name))
def test_vectors_pass_in_every_way_of_computing(target: Target, case: Case) -> None:
    for result in VECTOR_CHECKS["generated"].body(target, case):
        assert (result.path, result.status, result.reason) == (NDK, Status.PASSED, "")


def _check_on_device(library: NdkLibrary, service: Service, case: Case) -> None:
    with Target(service.target, paths=(NDK_BUFFER,), ndk=library) as target:
        for result in VECTOR_CHECKS["generated"].body(target, case):
            assert (result.path, result.status, result.reason) == (NDK_BUFFER, Status.PASSED, "")


def test_a_vector_passes_with_memories_of_the_device(library: NdkLibrary, ndk_service: Service) -> None:
    load()
    _check_on_device(library, ndk_service, builtin_case("add_float"))


@pytest.mark.nightly
@pytest.mark.parametrize("case", builtin.cases(), ids=lambda case: str(case.name))
def test_all_vectors_pass_with_memories_of_the_device(library: NdkLibrary, ndk_service: Service, case: Case) -> None:
    load()
    _check_on_device(library, ndk_service, case)


def test_a_wrong_element_fails(target: Target) -> None:
    case = builtin_case("add_float")
    array = case.outputs[0].array.copy()
    array.flat[0] += 7
    wrong = case.data["outputs"][0] | {"data": base64.b64encode(array.tobytes()).decode()}
    (result,) = VECTOR_CHECKS["generated"].body(target, Case(case.data | {"outputs": [wrong]}))
    assert (result.status, result.check) == (Status.FAILED, "GEN-18")
    assert "compute with arguments in buffers" in result.stimulus


def test_a_valid_vector_that_must_fail_fails(target: Target) -> None:
    case = Case(builtin_case("add_float").data | {"expect_failure": True})
    (result,) = VECTOR_CHECKS["generated"].body(target, case)
    assert (result.status, result.check) == (Status.FAILED, "VALREQ-11")


@pytest.mark.parametrize("way", WAYS)
def test_the_loop_timeout_reaches_the_device(
    library: NdkLibrary, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(logging.getLogger("nnhal.ndk"), "propagate", True)
    case = builtin_case("while_without_end")
    arguments = buffer_arguments(library, 0, case.inputs, [output.array.nbytes for output in case.outputs])
    with LibraryModel(library, case.model()) as model:
        options = RunOptions(loop_timeout_ns=3_000_000)
        execution = execute(library, model.compile(), WAYS[way], arguments, len(case.outputs), options)
    assert execution.outcome.is_missed_deadline
    assert "the loop timeout of 3 ms has passed" in caplog.text


def test_a_device_cannot_be_named(ndk_service: Service) -> None:
    options = ["--suite", "generated", "--path", NDK, "--target", ndk_service.target, "--device", "nnhal"]
    invoked = CliRunner().invoke(app, ["conformance", *options])
    assert (invoked.exit_code, "omit --device" in invoked.stderr) == (2, True)
