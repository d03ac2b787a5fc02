"""The suites against a real service, through the command line and without it."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from typer.testing import Result as Invoked

from nnhal.embedded import EmbeddedService
from nnhal.types import AnyArray, OperandType
from nnhal_tools.cli import app
from nnhal_tools.conformance import mutations, reduce
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.ids import CHECKS, SUITES
from nnhal_tools.conformance.paths import DEFAULT_PATHS, LOCAL_PATHS
from nnhal_tools.conformance.runner import CheckTask, TargetConfig, plan_tasks, run_tasks
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.case import Case, read_cases
from nnhal_tools.conformance.vectors.samples import builtin_case
from nnhal_tools.conformance.vectors.signed_variant import SUFFIX, signed_variant
from tests.conformance_sample import SAMPLE
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.shared import shared
from tests.tools.conformance.selftest.restartable import RestartableService

UNUSED_ADDRESS = "127.0.0.1:1"
BACKENDS = ("CpuAcc", "CpuRef")
"""Backends of the embedded device. The placement of a small model may use either."""
OTHER_DEVICES = {"CACHE-09", "CACHE-10", "RESIL-19"}
"""Ids that only devices of other kinds evaluate: see test_caching.py and test_resilience.py."""


def invoke(*arguments: object) -> Invoked:
    return CliRunner().invoke(app, ["conformance", *map(str, arguments)])


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with closing(EmbeddedService()) as service:
        yield service.target


def failed(results: Iterable[Result]) -> set[str]:
    return {result.name.removesuffix(SUFFIX) for result in results if result.status is Status.FAILED}


# ---- The built-in set -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run all suites over the built-in set with --strict, and return the JSON report."""
    path = tmp_path_factory.mktemp("report") / "report.json"
    with closing(RestartableService()) as service:
        control = service.control
        commands = ("--restart-cmd", control.restart_command, "--kill-cmd", control.kill_command)
        options = (*commands, "--stop-cmd", control.stop_command, "--recovery-s", control.recovery_s)
        invoked = invoke("--target", service.target, *options, "--strict", "--json", path)
    assert invoked.exit_code == 0, invoked.output
    report: dict[str, Any] = json.loads(path.read_text())
    assert invoked.stdout.splitlines()[-1] == report["summary"]
    return report


@pytest.mark.slow
def test_sample_of_every_suite_passes(target: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    invoked = invoke("--target", target, "--strict", "--json", path, *SAMPLE)
    assert invoked.exit_code == 0, invoked.output
    results = json.loads(path.read_text())["results"]
    assert {result["suite"] for result in results if result["status"] == "passed"} == {*SUITES} - {"resilience"}


@pytest.mark.nightly
def test_suites_without_vectors_pass(target: str) -> None:
    invoked = invoke("--target", target, "--strict", "--suite", "basic,extra,memdom,nnhal")
    assert invoked.exit_code == 0, invoked.output
    assert re.search(r"\d{3,} passed, 0 failed", invoked.stdout)


@pytest.mark.nightly
def test_the_built_in_set_passes(report: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d{3,} passed, 0 failed, \d+ skipped", report["summary"])
    assert {r["status"] for r in report["results"]} <= {"passed", "skipped"}


@pytest.mark.nightly
def test_every_vector_has_a_result_for_its_paths(report: dict[str, Any]) -> None:
    generated = {(r["name"], r["path"]) for r in report["results"] if r["suite"] == "generated"}
    for case in builtin.cases():
        assert (case.name, "SYNC") in generated
        assert ((case.name, "SYNC-C") in generated) == (not case.expect_failure or case.is_endless_loop)
        if variant := signed_variant(case):
            assert (variant.name, "SYNC") in generated
    (convolution,) = [r for r in report["results"] if (r["name"], r["path"]) == ("conv_float_same", "SYNC-C")][:1]
    assert convolution["operations"] in ([["CONV_2D", backend]] for backend in BACKENDS)


@pytest.mark.nightly
def test_every_id_is_evaluated(report: dict[str, Any]) -> None:
    evaluated = {check for r in report["results"] if r["status"] == "passed" for check in r["checks"]}
    expected = {check.id for check in CHECKS.values() if check.suite} - OTHER_DEVICES
    assert expected <= evaluated
    assert evaluated <= set(CHECKS)


# ---- Wrong outputs --------------------------------------------------------------------------------------


def with_wrong_element(case: Case, output: int, element: int) -> Case:
    """Return a copy with one wrong element: off by ten times its tolerance, or inverted for a bool."""
    expected = case.outputs[output]
    array = expected.array.copy()
    value = float(array.flat[element])
    if expected.type == OperandType.TENSOR_BOOL8:
        array.flat[element] = 1 - value
    else:
        distance = 10 * (expected.atol + expected.rtol * abs(value)) or 1
        array.flat[element] = value + distance if value + distance <= _largest(array) else value - distance
    outputs = [dict(entry) for entry in case.data["outputs"]]
    outputs[output]["data"] = base64.b64encode(array.tobytes()).decode()
    return Case(case.data | {"outputs": outputs})


def _largest(array: AnyArray) -> float:
    is_integer = np.issubdtype(array.dtype, np.integer)
    return float(np.iinfo(array.dtype).max if is_integer else np.finfo(array.dtype).max)


def is_comparable(case: Case) -> bool:
    return not case.expect_failure and any(not o.ignored and o.array.size for o in case.outputs)


def with_random_wrong_element(case: Case, rng: np.random.Generator) -> Case:
    numbers = [i for i, output in enumerate(case.outputs) if not output.ignored and output.array.size]
    output = int(rng.choice(numbers))
    return with_wrong_element(case, output, int(rng.integers(case.outputs[output].array.size)))


@pytest.mark.slow
def test_one_wrong_element_fails_exactly_that_vector(target: str) -> None:
    rng = np.random.default_rng(20)
    cases = [
        case for case in read_cases(shared("vectors")) if is_comparable(case) and case.multinomial_tolerance is None
    ]
    chosen = [cases[i] for i in rng.choice(len(cases), 40, replace=False)]
    wrong = [with_random_wrong_element(case, rng) for case in chosen[:20]]
    results = list(run_tasks(TargetConfig(target), plan_tasks(("generated",), [*wrong, *chosen[20:]]), jobs=2))
    assert failed(results) == {case.name for case in wrong}
    assert {result.check for result in results if result.status is Status.FAILED} == {"GEN-18"}
    assert sum(result.status is Status.PASSED for result in results) >= 2 * 20


def test_each_built_in_vector_can_fail(target: str) -> None:
    rng = np.random.default_rng(21)
    wrong = [with_random_wrong_element(case, rng) for case in builtin.cases() if is_comparable(case)]
    results = run_tasks(TargetConfig(target), plan_tasks(("generated",), wrong), jobs=2)
    assert failed(results) == {case.name for case in wrong}


def test_qos_compares_outputs_too(target: str) -> None:
    wrong = with_wrong_element(builtin_case("add_float"), 0, 0)
    (result,) = [
        r for r in run_tasks(TargetConfig(target), plan_tasks(("qos",), [wrong]), jobs=1) if r.name == wrong.name
    ]
    assert (result.status, result.check) == (Status.FAILED, "QOS-19")


def test_vector_that_must_fail_but_succeeds(target: str) -> None:
    case = Case(builtin_case("add_float").data | {"expect_failure": True})
    results = [
        r
        for r in run_tasks(TargetConfig(target), plan_tasks(("generated", "request"), [case]), jobs=1)
        if r.name == case.name
    ]
    assert [(r.suite, r.status, r.check) for r in results] == [
        ("generated", Status.FAILED, "VALREQ-11"),
        ("request", Status.FAILED, "VALREQ-11"),
    ]


def test_accepted_mutation_fails(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def harmless(base: mutations.ValidModel) -> Iterator[mutations.Edit]:
        yield mutations.Edit("nothing that matters", lambda model: None)

    mutations.load()
    monkeypatch.setitem(mutations.MUTATORS, "VALMODEL-08", harmless)
    (result,) = run_tasks(TargetConfig(target), plan_tasks(("validation",), [builtin_case("add_float")]), jobs=1)
    assert (result.status, result.check, result.checks) == (
        Status.FAILED,
        "VALMODEL-08",
        ["VALMODEL-08", "VALMODEL-01"],
    )
    assert result.stimulus == "getSupportedOperations, nothing that matters"


# ---- Runner ---------------------------------------------------------------------------------------------


def test_dead_device_ends_the_run(tmp_path: Path) -> None:
    service = start_service(tmp_path)

    def kill(_: object) -> list[Result]:
        stop_service(service)
        return []

    work = [CheckTask("kill", "basic", kill), *plan_tasks(("basic",), [])]
    (result,) = run_tasks(TargetConfig(service.target), work, jobs=1)
    assert (result.status, result.check) == (Status.FAILED, "COM-02")


def test_exception_of_the_harness_propagates(target: str) -> None:
    def defect(_: object) -> list[Result]:
        raise KeyError("defect")

    with pytest.raises(KeyError, match="defect"):
        list(run_tasks(TargetConfig(target), [CheckTask("defect", "basic", defect)], jobs=1))


def test_exclusive_tasks_run_last(target: str) -> None:
    order: list[str] = []

    def task(name: str, exclusive: bool) -> CheckTask:
        def work(_: object) -> list[Result]:
            order.append(name)
            return []

        return CheckTask(name, "basic", work, exclusive)

    done: list[None] = []
    work = [task("exclusive", True), task("a", False), task("b", False)]
    assert list(run_tasks(TargetConfig(target), work, 2, lambda: done.append(None))) == []
    assert order[-1] == "exclusive" and set(order) == {"a", "b", "exclusive"}
    assert len(done) == 3


# ---- The command line -----------------------------------------------------------------------------------


def test_failure_is_shown_reduced_and_counted(target: str, tmp_path: Path) -> None:
    folder, reduced = tmp_path / "vectors", tmp_path / "reduced"
    folder.mkdir()
    reduce.write_case(folder / "network.jsonl.gz", with_wrong_element(builtin_case("network"), 0, 1))
    reduce.write_case(folder / "add.jsonl.gz", builtin_case("add_float"))
    invoked = invoke("--target", target, "--suite", "generated", "--vectors", folder, "--reduce", reduced, "--jobs", 1)
    assert invoked.exit_code == 1
    lines = invoked.stdout.splitlines()
    shown = lines[lines.index("FAILED network (generated, SYNC)") :][:5]
    operations = (
        f"  CONV_2D on {backend}, RELU on {backend}, MEAN on {backend}: TENSOR_FLOAT32, " for backend in BACKENDS
    )
    assert shown[1].startswith(tuple(operations))
    assert shown[2] == "  GEN-18: data of output 0 of MEAN"
    assert shown[3].startswith("  expected  TENSOR_FLOAT32 element [0, 1] = ")
    assert shown[4].startswith("  got       ")
    paths = {*DEFAULT_PATHS, *LOCAL_PATHS}
    assert re.match(rf"\d+ passed, {len(paths)} failed, 0 skipped", lines[-1])
    assert _shown_paths(invoked.stdout) == paths
    (file,) = reduced.glob("*.jsonl.gz")
    (smaller,) = read_cases(reduced)
    assert str(file) in invoked.stdout.replace("\n", "")
    assert failed(run_tasks(TargetConfig(target), plan_tasks(("generated",), [smaller]), jobs=1)) == {smaller.name}


def _shown_paths(output: str) -> set[str]:
    """Return the paths of the failures that a run showed, in full or as repetitions."""
    repeated = re.findall(r"^network \(generated\) failed on (.*) in the same way as on ", output, re.MULTILINE)
    return {
        *re.findall(r"^FAILED network \(generated, (.*)\)$", output, re.MULTILINE),
        *", ".join(repeated).split(", "),
    }


@pytest.mark.parametrize("options", [(), ("--no-merge-partitions",)])
def test_report_tells_what_a_backend_ran_itself(tmp_path: Path, options: tuple[str, ...]) -> None:
    plugin = tmp_path / "plugin"
    assert CliRunner().invoke(app, ["new-backend", "Acme", "Npu", "--folder", str(plugin)]).exit_code == 0
    folder = tmp_path / "vectors"
    folder.mkdir()
    data = deepcopy(builtin_case("network").data)
    for operand in (3, 4):  # the results of CONV_2D and RELU: partitions with unknown shapes are not merged
        data["model"]["main"]["operands"][operand]["dimensions"] = [1, 2, 2, 2]
    reduce.write_case(folder / "network.jsonl.gz", Case(data))
    vector = ("--suite", "generated", "--vectors", folder, "--path", "SYNC", "--json", tmp_path / "report.json")
    invoked = invoke("--backends-path", plugin, "--backend", "Npu,CpuRef", *vector, *options)
    assert invoked.exit_code == 0, invoked.output
    shares = {share["id"]: share for share in json.loads((tmp_path / "report.json").read_text())["backends"]}
    # RELU stands between operations of CpuRef, and is too small to pay for a partition of its own
    assert shares["Npu"]["operations"] == (["RELU"] if options else [])
    assert re.search(rf"Npu\b.* {len(options)} of 3 ", invoked.stdout), invoked.stdout
    assert {*shares["CpuRef"]["operations"], *shares["Npu"]["operations"]} == {"CONV_2D", "MEAN", "RELU"}


def test_default_target_is_the_embedded_device(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    invoked = invoke("--suite", "basic", "--select", "STATIC-02", "--json", path)
    assert invoked.exit_code == 0, invoked.output
    assert invoked.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    report = json.loads(path.read_text())
    assert report["target"] == "a service started by this command"
    assert report["device"] == "nnhal" and report["device_version"].startswith("nnhal/")
    assert [backend["id"] for backend in report["backends"]] == list(BACKENDS)


def test_an_installation_without_tests_refers_to_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("nnhal_tools.cli.conformance._CHECKOUT", tmp_path)
    invoked = invoke("--self-test")
    assert invoked.exit_code == 2
    assert "run `make self-test` in a checkout" in invoked.stderr and invoked.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--suite", "basic,quality"], 2, "unknown suite 'quality'"),
        (["--target", UNUSED_ADDRESS, "--suite", "basic"], 1, f"{UNUSED_ADDRESS}: connection refused; is the service"),
        (["--target", UNUSED_ADDRESS, "--mode", "perf"], 1, f"{UNUSED_ADDRESS}: connection refused"),
        (["--target", UNUSED_ADDRESS, "--self-test"], 1, f"{UNUSED_ADDRESS}: connection refused"),
        (["--target", "unix:/no/such", "--suite", "basic"], 1, "there is no such socket"),
        (["--target", "http://here", "--suite", "basic"], 2, "invalid address 'http://here'"),
        (["--mode", "support", "--junit", "x.xml"], 2, "--junit needs results of checks, and --mode support runs none"),
        (["--mode", "perf", "--html", "x.html"], 2, "--html needs results of checks, and --mode perf runs none"),
        (["--target", UNUSED_ADDRESS, "--no-merge-partitions"], 2, "apply to the embedded service; omit --target"),
        (["--vectors", "/nowhere"], 2, "no vectors"),
        (["--recovery-s", "soon"], 2, "expected a number of at least 0"),
        (["--suite", "basic", "--select", "NOTHING"], 2, "the options select no checks"),
    ],
)
def test_invalid_options_are_reported_in_one_line(arguments: list[str], code: int, words: str) -> None:
    invoked = invoke(*arguments)
    assert invoked.exit_code == code
    assert words in invoked.stderr and invoked.stderr.count("\n") == 1
