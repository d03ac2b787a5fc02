"""The paths of execution: which are chosen, and that each one finds what is wrong."""

import base64
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from typer.testing import CliRunner

from nnhal.embedded import EmbeddedService
from nnhal.types import ErrorStatus
from tools.cli import app
from tools.conformance import builtin
from tools.conformance.check import CheckFailed, Judge, Status
from tools.conformance.paths import ALL, CALLS, DEFAULT, LOCAL, PATHS, chosen, judge_steps
from tools.conformance.paths.burst import identifiers_of
from tools.conformance.paths.fenced import ERROR, launch, wait
from tools.conformance.paths.staged import STALE, staged
from tools.conformance.run import Where, run, tasks
from tools.conformance.samples import named, prepared, request_of
from tools.conformance.suites.extra.fences import own_fence, signal
from tools.conformance.target import OK, Executed, Run, Step, Target
from tools.conformance.vectors import Case


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with closing(EmbeddedService()) as service:
        yield service.target


@pytest.fixture
def target(address: str) -> Iterator[Target]:
    with Target(address) as target:
        yield target


def wrong(name: str) -> Case:
    """A built-in vector with another first element of output 0."""
    case = named(name)
    array = case.outputs[0].array.copy()
    array.flat[0] += 7
    outputs = [case.data["outputs"][0] | {"data": base64.b64encode(array.tobytes()).decode()}]
    return Case(case.data | {"outputs": outputs + case.data["outputs"][1:]})


def test_the_paths_of_the_checklist_are_there() -> None:
    wanted = {"SYNC", "SYNC-C", "SYNC-R", "BURST", "BURST-C", "FENCED", "FENCED-C", "FENCED-R"}
    assert wanted | {"BURST-STREAM", "BURST-C-STREAM", *LOCAL} == set(CALLS)
    assert {f"{code}/BUFFER" for code in (*wanted, *LOCAL)} == set(PATHS) - set(CALLS)


def test_paths_are_chosen_by_their_codes() -> None:
    assert tuple(chosen(())) == DEFAULT
    assert set(chosen((), built_in=True)) == {*DEFAULT, *LOCAL}
    assert list(chosen(("SYNC",), built_in=True)) == ["SYNC"]
    assert list(chosen(("FENCED", "SYNC"))) == ["SYNC", "FENCED"]
    assert chosen((ALL,)) == PATHS
    with pytest.raises(ValueError, match="there is no path 'SYNC-X'; there are SYNC, "):
        chosen(("SYNC-X",))


def test_the_command_runs_the_paths_that_are_named(address: str) -> None:
    arguments = ["conformance", "--target", address, "--suite", "generated", "--select", "add_float", "--path"]
    assert CliRunner().invoke(app, [*arguments, "BURST,FENCED-R"]).stdout.endswith("2 passed, 0 failed, 0 skipped\n")
    unknown = CliRunner().invoke(app, [*arguments, "SYNC-X"])
    assert unknown.exit_code == 2 and "there is no path 'SYNC-X'" in unknown.stderr


def test_every_path_finds_a_wrong_element(address: str) -> None:
    results = list(
        run(Where(address, paths=(ALL,)), tasks(("generated",), [wrong("add_float"), named("mul_float")]), 1)
    )
    failed = [result for result in results if result.status is Status.FAILED]
    assert [result.path for result in failed] == list(PATHS)
    assert {(result.name, result.check) for result in failed} == {("add_float", "GEN-18")}
    assert sum(result.status is Status.PASSED for result in results) >= len(PATHS)


@pytest.mark.parametrize("code", PATHS)
def test_a_path_says_what_it_did(target: Target, code: str) -> None:
    with prepared(target, "add_float") as model:
        executed = PATHS[code](target, model, request_of("add_float"), Run(keep=True, chain=True))
    assert executed.answer.status == ErrorStatus.NONE and all(step.holds for step in executed.steps)
    assert executed.outputs[0] is not None
    assert executed.outputs[0].tobytes() == named("add_float").outputs[0].array.tobytes()
    before = executed.before.steps if executed.before else ()
    found = {step.check for step in (*before, *executed.steps)}
    is_reusable = "-R" in code
    assert ("GEN-03" in found) == is_reusable
    assert ({"GEN-05", "GEN-07"} <= found) == code.startswith("BURST")
    assert ({"GEN-10", "GEN-11"} <= found) == code.startswith("FENCED") == executed.launched
    assert ("GEN-09" in found) == (code.startswith("FENCED") and not is_reusable)
    assert ({"GEN-28", "GEN-29", "GEN-30", "GEN-32"} <= found) == ("/BUFFER" in code)


def test_a_step_that_does_not_hold_fails_under_the_id_asked_for() -> None:
    executed = Executed(OK, steps=[Step("GEN-07", False, "a release", "NONE", "an error")])
    with pytest.raises(CheckFailed, match=r"^GEN-07: a release: expected NONE, got an error$"):
        judge_steps(Judge(), executed)
    with pytest.raises(CheckFailed, match=r"^MEMDOM-69: "):
        judge_steps(Judge(), executed, "MEMDOM-69")


def test_staged_outputs_lie_in_memory_and_are_overwritten(target: Target) -> None:
    request = request_of("add_float")
    with staged(target, request) as made:
        assert made.request.pools[1].pool.mapped.memory and request.pools[1].HasField("returned")
        assert identifiers_of(made.request) == [0, 1] and identifiers_of(request) == [0, -1]
        (output,) = made.outputs()
        assert output is not None and not output.any()
        made.spoil()
        (output,) = made.outputs()
        assert output is not None and np.all(output == STALE)


def test_a_fence_in_error_is_an_end(target: Target) -> None:
    gate = own_fence(target)
    with prepared(target, "add_float") as model, staged(target, request_of("add_float")) as made:
        begun = launch(target, model, made.request, Run(), [gate])
        signal(target, gate, error=True)
        assert wait(target, begun.fence)[1] == ERROR


def test_the_default_evaluates_what_buffers_fences_and_bursts_are_held_to(address: str) -> None:
    results = run(Where(address), tasks(("generated",), builtin.cases()), 2)
    evaluated = {check for result in results if result.status is Status.PASSED for check in result.checks}
    assert {f"GEN-{number:02d}" for number in range(1, 36)} <= evaluated
