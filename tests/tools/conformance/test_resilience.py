"""Suite `resilience`: services that are killed while sessions are at work, and detection of faults."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from nnhal.embedded import EmbeddedService
from nnhal_tools.conformance.check import CheckRecorder, Result, Status
from nnhal_tools.conformance.device.control import KILL, PID_VARIABLE, ServiceControl
from nnhal_tools.conformance.device.data_connection import process_of_service
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.ids import CHECKS
from nnhal_tools.conformance.resilience.models import AddChain, random_values
from nnhal_tools.conformance.resilience.outage import outage
from nnhal_tools.conformance.runner import TargetConfig, plan_tasks, run_tasks
from nnhal_tools.conformance.selection import Selection
from nnhal_tools.conformance.suites.resilience.executions import executing
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.tools.conformance.selftest.command import select_faults
from tests.tools.conformance.selftest.fault import FAULTS
from tests.tools.conformance.selftest.restartable import RECOVERY_S, RestartableService
from tests.tools.conformance.selftest.trial import run_trial

SUITE = "resilience"
KILL_THE_SERVICE = f"kill -9 ${PID_VARIABLE}"

FAULTS_OF_EACH_KIND = (
    "two-notifies-at-the-end",
    "silence-at-the-end",
    "zeros-at-the-end",
    "last-result-repeated-at-the-end",
    "part-of-a-memory-taken-for-all-of-it",
    "no-sessions-after-an-end",
    "lost-session-resumed-without-its-objects",
    "half-an-entry-is-a-hit",
    "session-outlives-its-process",
)


@pytest.fixture(scope="module")
def service() -> Iterator[RestartableService]:
    with closing(RestartableService()) as service:
        yield service


@pytest.fixture
def config(service: RestartableService) -> TargetConfig:
    return TargetConfig(service.target, control=service.control)


def run_suite(config: TargetConfig, *patterns: str) -> dict[str, Result]:
    """Run checks of the suite, and return their results by name."""
    return {result.name: result for result in run_tasks(config, plan_tasks((SUITE,), [], Selection(patterns)), jobs=1)}


# ---- Results of a right device ----------------------------------------------------------------------------


@pytest.mark.nightly
def test_service_that_comes_back_passes_every_check(config: TargetConfig) -> None:
    results = run_suite(config)
    other_processes = results.pop("RESIL-19")
    assert other_processes.status is Status.SKIPPED and "served all 12 sessions" in other_processes.reason
    assert {name: result.reason for name, result in results.items() if result.status is not Status.PASSED} == {}
    evaluated = {id_ for result in results.values() for id_ in result.checks}
    assert {id_ for id_, check in CHECKS.items() if check.suite == SUITE} - {"RESIL-19"} <= evaluated


@pytest.mark.slow
def test_killed_worker_leaves_the_sessions_of_another_one_alone(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--workers", "2")
    try:
        control = ServiceControl(kill_command=KILL_THE_SERVICE, recovery_s=RECOVERY_S)
        config = TargetConfig(service.target, control=control)
        result = run_suite(config, "RESIL-19")["RESIL-19"]
        assert (result.status, result.reason) == (Status.PASSED, "")
        assert {"RESIL-14", "RESIL-15", "RESIL-19"} <= set(result.checks)
    finally:
        stop_service(service)


def test_suite_is_skipped_without_a_command() -> None:
    with closing(EmbeddedService()) as service:
        results = run_suite(TargetConfig(service.target))
        assert service.running
    reasons = {(result.status, result.reason) for result in results.values()}
    assert reasons == {(Status.SKIPPED, "needs --kill-cmd"), (Status.SKIPPED, "needs --stop-cmd")}


# ---- Commands ---------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_command_that_kills_nothing_is_skipped() -> None:
    with closing(EmbeddedService()) as service:
        config = TargetConfig(service.target, control=ServiceControl(kill_command="true"))
        result = run_suite(config, "RESIL-08")["RESIL-08"]
    assert (result.status, result.reason) == (Status.SKIPPED, "the command ended no session, 5 times")


def test_command_that_fails_is_a_failure() -> None:
    with closing(EmbeddedService()) as service:
        config = TargetConfig(service.target, control=ServiceControl(kill_command="exit 3"))
        result = run_suite(config, "RESIL-08")["RESIL-08"]
    assert (result.status, result.check) == (Status.FAILED, "RESIL-08")
    assert "exit status 3" in result.got


def test_command_is_told_the_process_that_serves_a_session(tmp_path: Path) -> None:
    with closing(EmbeddedService()) as service, Target(service.target) as target:
        assert process_of_service(target) == service.pid
        control = ServiceControl(kill_command=f"echo ${PID_VARIABLE} >{tmp_path}/pid")
        control.run(KILL, "RESIL-04", process_of_service(target))
        assert (tmp_path / "pid").read_text() == f"{service.pid}\n"
        control.run(KILL, "RESIL-04", 0)
        assert (tmp_path / "pid").read_text() == "\n"


@pytest.mark.slow
def test_service_that_stays_away_is_restarted_by_the_operator() -> None:
    with closing(RestartableService(comes_back=False)) as service:
        control = replace(service.control, recovery_s=5.0)
        with Target(service.target, control=control) as target:
            recorder = CheckRecorder()
            with outage(target, recorder, "RESIL-04", {"SYNC": executing("SYNC", "RESIL-04")}) as back:
                chain, values = AddChain.random(), random_values()
                execution = back.fresh.execute(chain.prepared(back.fresh), chain.request(values))
                chain.expect_correct("RESIL-04", "SYNC", values, execution)
        assert {"RESIL-04", "RESIL-14", "RESIL-15"} <= set(recorder.evaluated)


# ---- Detection of faults ----------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("name", FAULTS_OF_EACH_KIND)
def test_fault_fails_each_of_its_ids(config: TargetConfig, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    (fault,) = select_faults([name])
    verdict = run_trial(config, fault)
    assert set(fault.checks) <= verdict.failed.keys() and verdict.missed == ()
    assert "Traceback" not in capfd.readouterr().err  # the fault itself works


def test_each_id_has_a_fault() -> None:
    select_faults()
    caught = {id_ for fault in FAULTS.values() for id_ in fault.checks}
    assert {id_ for id_, check in CHECKS.items() if check.suite == SUITE} <= caught
