"""The suites against a real service, through the command line and without it."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from typer.testing import Result as Invoked

from nnhal.embedded import EmbeddedService
from nnhal.types import DTYPES, AnyArray, OperandType
from tests.end_to_end.conftest import start, stop
from tests.shared import shared
from tools.cli import app
from tools.conformance import builtin, mutations, reduce, vectors
from tools.conformance.builtin.writer import Graph
from tools.conformance.builtin.writer import case as written
from tools.conformance.check import Result, Status
from tools.conformance.ids import CHECKS
from tools.conformance.paths import DEFAULT, LOCAL
from tools.conformance.run import Task, Where, run, tasks
from tools.conformance.samples import named
from tools.conformance.selftest.restartable import RestartableService
from tools.conformance.twin import signed_twin
from tools.conformance.vectors import Case

TWIN = " (signed twin)"
NOBODY = "127.0.0.1:1"
BACKENDS = ("CpuAcc", "CpuRef")
"""Where a small model runs is the placement's business."""
OTHER_DEVICES = {"CACHE-09", "CACHE-10"}
"""For devices that answer wrong files with GENERAL_FAILURE, and those that cache nothing: see test_caching.py."""


def invoke(*arguments: object) -> Invoked:
    return CliRunner().invoke(app, ["conformance", *map(str, arguments)])


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with closing(EmbeddedService()) as service:
        yield service.target


def failed(results: Iterable[Result]) -> set[str]:
    return {result.name.removesuffix(TWIN) for result in results if result.status is Status.FAILED}


# ---- The built-in set -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a strict run over the built-in set says."""
    path = tmp_path_factory.mktemp("report") / "report.json"
    with closing(RestartableService()) as service:
        options = ("--restart-cmd", service.restart_command, "--strict", "--json", path)
        invoked = invoke("--target", service.target, *options)
    assert invoked.exit_code == 0, invoked.output
    report: dict[str, Any] = json.loads(path.read_text())
    assert invoked.stdout.splitlines()[-1] == report["summary"]
    return report


def test_the_built_in_set_passes(report: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d{3,} passed, 0 failed, \d+ skipped", report["summary"])
    assert {r["status"] for r in report["results"]} <= {"passed", "skipped"}


def test_every_vector_has_a_result_for_each_path(report: dict[str, Any]) -> None:
    generated = {(r["name"], r["path"]) for r in report["results"] if r["suite"] == "generated"}
    for case in builtin.cases():
        assert (case.name, "SYNC") in generated
        assert ((case.name, "SYNC-C") in generated) == (not case.expect_failure or case.is_endless_loop)
        if twin := signed_twin(case):
            assert (twin.name, "SYNC") in generated
    (convolution,) = [r for r in report["results"] if (r["name"], r["path"]) == ("conv_float_same", "SYNC-C")][:1]
    assert convolution["operations"] in ([["CONV_2D", backend]] for backend in BACKENDS)


def test_every_id_that_is_here_is_evaluated(report: dict[str, Any]) -> None:
    evaluated = {check for r in report["results"] if r["status"] == "passed" for check in r["checks"]}
    wanted = {check.id for check in CHECKS.values() if check.suite} - OTHER_DEVICES
    assert wanted <= evaluated
    assert evaluated <= set(CHECKS)


# ---- Outputs that are wrong -----------------------------------------------------------------------------


def moved(case: Case, output: int, element: int) -> Case:
    """A copy in which one element of an output is off by ten times its tolerance; a truth value is turned over."""
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


def comparable(case: Case) -> bool:
    return not case.expect_failure and any(not o.ignored and o.array.size for o in case.outputs)


def tampered(case: Case, rng: np.random.Generator) -> Case:
    numbers = [i for i, output in enumerate(case.outputs) if not output.ignored and output.array.size]
    output = int(rng.choice(numbers))
    return moved(case, output, int(rng.integers(case.outputs[output].array.size)))


def test_one_wrong_element_fails_exactly_that_vector(target: str) -> None:
    rng = np.random.default_rng(20)
    cases = [
        case for case in vectors.read(shared("vectors")) if comparable(case) and case.multinomial_tolerance is None
    ]
    chosen = [cases[i] for i in rng.choice(len(cases), 100, replace=False)]
    wrong = [tampered(case, rng) for case in chosen[:50]]
    results = list(run(Where(target), tasks(("generated",), [*wrong, *chosen[50:]]), jobs=2))
    assert failed(results) == {case.name for case in wrong}
    assert {result.check for result in results if result.status is Status.FAILED} == {"GEN-18"}
    assert sum(result.status is Status.PASSED for result in results) >= 2 * 50


def test_each_built_in_vector_can_fail(target: str) -> None:
    rng = np.random.default_rng(21)
    wrong = [tampered(case, rng) for case in builtin.cases() if comparable(case)]
    results = run(Where(target), tasks(("generated",), wrong), jobs=2)
    assert failed(results) == {case.name for case in wrong}


def test_qos_compares_outputs_too(target: str) -> None:
    wrong = moved(named("add_float"), 0, 0)
    (result,) = [r for r in run(Where(target), tasks(("qos",), [wrong]), jobs=1) if r.name == wrong.name]
    assert (result.status, result.check) == (Status.FAILED, "QOS-19")


def test_a_vector_that_must_fail_and_does_not(target: str) -> None:
    right = Case(named("add_float").data | {"expect_failure": True})
    results = [r for r in run(Where(target), tasks(("generated", "request"), [right]), jobs=1) if r.name == right.name]
    assert [(r.suite, r.status, r.check) for r in results] == [
        ("generated", Status.FAILED, "VALREQ-11"),
        ("request", Status.FAILED, "VALREQ-11"),
    ]


def test_a_mutation_that_is_not_refused_fails(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def harmless(base: mutations.Base) -> Iterator[mutations.Edit]:
        yield mutations.Edit("nothing that matters", lambda model: None)

    mutations.load()
    monkeypatch.setitem(mutations.MUTATORS, "VALMODEL-08", harmless)
    (result,) = run(Where(target), tasks(("validation",), [named("add_float")]), jobs=1)
    assert (result.status, result.check, result.checks) == (
        Status.FAILED,
        "VALMODEL-08",
        ["VALMODEL-08", "VALMODEL-01"],
    )
    assert result.stimulus == "getSupportedOperations, nothing that matters"


# ---- Runs that go wrong ---------------------------------------------------------------------------------


def test_a_device_that_dies_ends_the_run(tmp_path: Path) -> None:
    service = start(tmp_path)

    def kill(_: object) -> list[Result]:
        stop(service)
        return []

    work = [Task("kill", "basic", kill), *tasks(("basic",), [])]
    (result,) = run(Where(service.target), work, jobs=1)
    assert (result.status, result.check) == (Status.FAILED, "COM-02")


def test_a_defect_of_the_harness_is_raised(target: str) -> None:
    def defect(_: object) -> list[Result]:
        raise KeyError("defect")

    with pytest.raises(KeyError, match="defect"):
        list(run(Where(target), [Task("defect", "basic", defect)], jobs=1))


def test_what_must_be_alone_comes_last(target: str) -> None:
    order: list[str] = []

    def task(name: str, alone: bool) -> Task:
        def work(_: object) -> list[Result]:
            order.append(name)
            return []

        return Task(name, "basic", work, alone)

    done: list[None] = []
    work = [task("alone", True), task("a", False), task("b", False)]
    assert list(run(Where(target), work, 2, lambda: done.append(None))) == []
    assert order[-1] == "alone" and set(order) == {"a", "b", "alone"}
    assert len(done) == 3


# ---- The command line -----------------------------------------------------------------------------------


def test_a_failure_is_shown_reduced_and_counted(target: str, tmp_path: Path) -> None:
    folder, reduced = tmp_path / "vectors", tmp_path / "reduced"
    folder.mkdir()
    reduce.write(folder / "network.jsonl.gz", moved(named("network"), 0, 1))
    reduce.write(folder / "add.jsonl.gz", named("add_float"))
    invoked = invoke("--target", target, "--suite", "generated", "--vectors", folder, "--reduce", reduced, "--jobs", 1)
    assert invoked.exit_code == 1
    lines = invoked.stdout.splitlines()
    shown = lines[lines.index("FAILED network (generated, SYNC)") :][:5]
    placed = (f"  CONV_2D on {backend}, RELU on {backend}, MEAN on {backend}: TENSOR_FLOAT32, " for backend in BACKENDS)
    assert shown[1].startswith(tuple(placed))
    assert shown[2] == "  GEN-18: data of output 0 of MEAN"
    assert shown[3].startswith("  expected  TENSOR_FLOAT32 element [0, 1] = ")
    assert shown[4].startswith("  got       ")
    failures = sum(line.startswith("FAILED network (generated, ") for line in lines)
    assert failures == len((*DEFAULT, *LOCAL)) and re.match(rf"\d+ passed, {failures} failed, 0 skipped", lines[-1])
    (file,) = reduced.glob("*.jsonl.gz")
    (smaller,) = vectors.read(reduced)
    assert str(file) in invoked.stdout.replace("\n", "")
    assert failed(run(Where(target), tasks(("generated",), [smaller]), jobs=1)) == {smaller.name}


def test_no_target_means_an_embedded_device(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    invoked = invoke("--suite", "basic", "--select", "STATIC-02", "--json", path)
    assert invoked.exit_code == 0, invoked.output
    assert invoked.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert json.loads(path.read_text())["target"].startswith("unix:")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--suite", "basic,quality"], 2, "there is no suite 'quality'"),
        (["--target", NOBODY, "--suite", "basic"], 1, f"nobody answers at {NOBODY}"),
        (["--vectors", "/nowhere"], 2, "no vectors"),
        (["--suite", "basic", "--select", "NOTHING"], 2, "nothing is selected"),
    ],
)
def test_misuse_is_one_line(arguments: list[str], code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.conformance.target.CONNECT_S", 0.5)
    invoked = invoke(*arguments)
    assert invoked.exit_code == code
    assert words in invoked.stderr and invoked.stderr.count("\n") == 1


# ---- Vectors of our own ---------------------------------------------------------------------------------


def test_the_signed_twin() -> None:
    case = named("add_quant8")
    twin = signed_twin(case)
    assert twin is not None
    assert twin.name == case.name + TWIN
    assert set(twin.types) == {"TENSOR_QUANT8_ASYMM_SIGNED", "INT32"}
    operands = twin.data["model"]["main"]["operands"]
    assert [o["zero_point"] for o in operands] == [-118, 0, 0, -78]
    for before, after in zip(case.inputs, twin.inputs, strict=True):
        assert before is not None and after is not None
        np.testing.assert_array_equal(after, before.astype(int) - 128)
    np.testing.assert_array_equal(twin.outputs[0].array, case.outputs[0].array.astype(int) - 128)
    weights = signed_twin(named("depthwise_quant8"))
    assert weights is not None
    before, after = (_constant(c, 1) for c in (named("depthwise_quant8"), weights))
    np.testing.assert_array_equal(after, before.astype(int) - 128)


def _constant(case: Case, operand: int) -> AnyArray:
    entry = case.data["model"]["main"]["operands"][operand]
    return np.frombuffer(base64.b64decode(entry["data"]), DTYPES[OperandType[entry["type"]]])


@pytest.mark.parametrize("name", ["add_float", "network", "conv_per_channel", "gather_out_of_range"])
def test_others_have_no_twin(name: str) -> None:
    assert signed_twin(named(name)) is None


def test_uncoupled_operations_have_no_twin() -> None:
    graph = Graph()
    graph.apply(
        "CAST", [graph.input("TENSOR_QUANT8_ASYMM", (2,), 1.0)], [graph.output("TENSOR_QUANT8_ASYMM", (2,), 1.0)]
    )
    assert signed_twin(written("cast", graph, [[1, 2]], [[1, 2]])) is None


def test_built_in_names_are_unique() -> None:
    names = [case.name for case in builtin.cases()]
    assert len(set(names)) == len(names) >= 12
