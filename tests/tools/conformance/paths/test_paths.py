"""Paths of execution: their selection, and their detection of wrong outputs."""

import base64
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from typer.testing import CliRunner

from nnhal.embedded import EmbeddedService
from nnhal.types import ErrorStatus
from nnhal_tools.cli import app
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Status
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import OK, ExecutionOutcome, PathStep
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import ALL, CALLS, DEFAULT_PATHS, LOCAL_PATHS, PATHS, select_paths
from nnhal_tools.conformance.paths.burst import memory_identifiers
from nnhal_tools.conformance.paths.fenced import ERROR, launch, wait_for_fence
from nnhal_tools.conformance.paths.path import check_steps
from nnhal_tools.conformance.paths.staged import STALE_BYTE, staged_request
from nnhal_tools.conformance.runner import TargetConfig, plan_tasks, run_tasks
from nnhal_tools.conformance.suites.extra.fences import create_fence, signal_fence
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, prepared_model


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with closing(EmbeddedService()) as service:
        yield service.target


@pytest.fixture
def target(address: str) -> Iterator[Target]:
    with Target(address) as target:
        yield target


def wrong_case(name: str) -> Case:
    """Return a built-in vector with a wrong first element of output 0."""
    case = builtin_case(name)
    array = case.outputs[0].array.copy()
    array.flat[0] += 7
    outputs = [case.data["outputs"][0] | {"data": base64.b64encode(array.tobytes()).decode()}]
    return Case(case.data | {"outputs": outputs + case.data["outputs"][1:]})


def test_all_paths_of_the_checklist_exist() -> None:
    codes = {"SYNC", "SYNC-C", "SYNC-D", "SYNC-R", "BURST", "BURST-C", "FENCED", "FENCED-C", "FENCED-R"}
    assert codes | {"BURST-STREAM", "BURST-C-STREAM", "BURST-D-STREAM", *LOCAL_PATHS} == set(CALLS)
    assert {f"{code}/BUFFER" for code in (*codes, *LOCAL_PATHS)} == set(PATHS) - set(CALLS)


def test_paths_are_selected_by_code() -> None:
    assert tuple(select_paths(())) == DEFAULT_PATHS
    assert set(select_paths((), built_in=True)) == {*DEFAULT_PATHS, *LOCAL_PATHS}
    assert list(select_paths(("SYNC",), built_in=True)) == ["SYNC"]
    assert list(select_paths(("FENCED", "SYNC"))) == ["SYNC", "FENCED"]
    assert select_paths((ALL,)) == PATHS
    with pytest.raises(ValueError, match="unknown path 'SYNC-X'; the paths are SYNC, "):
        select_paths(("SYNC-X",))


def test_command_runs_the_selected_paths(address: str) -> None:
    arguments = ["conformance", "--target", address, "--suite", "generated", "--select", "add_float", "--path"]
    assert CliRunner().invoke(app, [*arguments, "BURST,FENCED-R"]).stdout.endswith("2 passed, 0 failed, 0 skipped\n")
    unknown = CliRunner().invoke(app, [*arguments, "SYNC-X"])
    assert unknown.exit_code == 2 and "unknown path 'SYNC-X'" in unknown.stderr


def test_every_path_detects_a_wrong_element(address: str) -> None:
    results = list(
        run_tasks(
            TargetConfig(address, paths=(ALL,)),
            plan_tasks(("generated",), [wrong_case("add_float"), builtin_case("mul_float")]),
            1,
        )
    )
    failed = [result for result in results if result.status is Status.FAILED]
    assert [result.path for result in failed] == list(PATHS)
    assert {(result.name, result.check) for result in failed} == {("add_float", "GEN-18")}
    assert sum(result.status is Status.PASSED for result in results) >= len(PATHS)


@pytest.mark.parametrize("code", PATHS)
def test_path_reports_its_steps(target: Target, code: str) -> None:
    with prepared_model(target, "add_float") as model:
        executed = PATHS[code](target, model, builtin_request("add_float"), RunOptions(cache_memory=True, chain=True))
    assert executed.outcome.status == ErrorStatus.NONE and all(step.holds for step in executed.steps)
    assert executed.outputs[0] is not None
    assert executed.outputs[0].tobytes() == builtin_case("add_float").outputs[0].array.tobytes()
    before = executed.first_run.steps if executed.first_run else ()
    found = {step.check for step in (*before, *executed.steps)}
    is_reusable = "-R" in code
    assert ("GEN-03" in found) == is_reusable
    assert ({"GEN-05", "GEN-07"} <= found) == (code.startswith("BURST") and "-D-" not in code)
    assert ({"GEN-10", "GEN-11"} <= found) == code.startswith("FENCED") == executed.launched
    assert ("GEN-09" in found) == (code.startswith("FENCED") and not is_reusable)
    assert ({"GEN-28", "GEN-29", "GEN-30", "GEN-32"} <= found) == ("/BUFFER" in code)


def test_failed_step_counts_as_the_given_id() -> None:
    executed = ExecutionOutcome(OK, steps=[PathStep("GEN-07", False, "a release", "NONE", "an error")])
    with pytest.raises(CheckFailed, match=r"^GEN-07: a release: expected NONE, got an error$"):
        check_steps(CheckRecorder(), executed)
    with pytest.raises(CheckFailed, match=r"^MEMDOM-69: "):
        check_steps(CheckRecorder(), executed, "MEMDOM-69")


def test_staged_outputs_are_in_memory_and_can_be_overwritten(target: Target) -> None:
    request = builtin_request("add_float")
    with staged_request(target, request) as staged:
        assert staged.request.pools[1].pool.mapped.memory and request.pools[1].HasField("returned")
        assert memory_identifiers(staged.request) == [0, 1] and memory_identifiers(request) == [0, -1]
        (output,) = staged.outputs()
        assert output is not None and not output.any()
        staged.overwrite_outputs()
        (output,) = staged.outputs()
        assert output is not None and np.all(output == STALE_BYTE)


def test_wait_ends_when_the_fence_is_in_error(target: Target) -> None:
    gate = create_fence(target)
    with prepared_model(target, "add_float") as model, staged_request(target, builtin_request("add_float")) as staged:
        launched = launch(target, model, staged.request, RunOptions(), [gate])
        signal_fence(target, gate, error=True)
        assert wait_for_fence(target, launched.fence)[1] == ERROR


@pytest.mark.slow
def test_default_paths_evaluate_all_generated_ids(address: str) -> None:
    results = run_tasks(TargetConfig(address), plan_tasks(("generated",), builtin.cases()), 2)
    evaluated = {check for result in results if result.status is Status.PASSED for check in result.checks}
    assert {f"GEN-{number:02d}" for number in range(1, 36)} <= evaluated
