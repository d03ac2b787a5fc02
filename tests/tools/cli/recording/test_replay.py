"""`nnhal replay` and `nnhal record to-vectors` on the traffic of a day, with defects seeded in a backend."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from nnhal.recording.archive import Archive
from nnhal.types import Model
from nnhal.types import OperationType as Op
from nnhal_tools.conformance.vectors.case import read_cases
from tests.end_to_end.support.models import chain
from tests.nnhal.recording.archives import header, packed_model, packed_record, write_archive
from tests.tools.cli.command import assert_fails, invoke
from tests.tools.replay.traffic import PLUGINS, random_model, record_day

pytestmark = pytest.mark.slow
DEFECT = ("--backends", "DefectRef", "--backends-path", PLUGINS)


def make_models(count: int) -> list[Model]:
    """Return models of which the second one has an ADD, and the third one a MAXIMUM."""
    random = Random(4)
    defects: Mapping[int, Op] = {1: Op.ADD, 2: Op.MAXIMUM}
    return [random_model(random, 3 + i, *([defects[i]] if i in defects else [])) for i in range(count)]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_day(tmp_path_factory.mktemp("day"), make_models(3), 300, 0.25)


def digest_of(records: Path, operation: Op) -> str:
    """Return the digest of the recorded model that has an operation."""
    archive = Archive(records)
    for digest in {record.model for record in archive.records}:
        if operation in [each.type for each in archive.model(digest).main.operations]:
            return digest
    raise AssertionError(f"no model has {operation.name}")


def check_defects(records: Path, folder: Path, models: int) -> None:
    """Replay on the backend with defects, and check that both are found and that the wrong one is reduced."""
    paths = {name: folder / f"report.{name}" for name in ("json", "junit", "html")}
    options = [text for name, path in paths.items() for text in (f"--{name}", path)]
    result = invoke("replay", records, *DEFECT, "--slower", 0, *options)
    assert result.exit_code == 1, result.output
    report = json.loads(paths["json"].read_text())
    by_model: dict[str, Any] = {each["model"]: each for each in report["models"]}
    wrong, slow = digest_of(records, Op.ADD), digest_of(records, Op.MAXIMUM)
    assert len(by_model) == models
    assert [digest for digest, each in by_model.items() if each["outcomes"]["different"]] == [wrong]
    number = [each.type for each in Archive(records).model(wrong).main.operations].index(Op.ADD)
    assert by_model[wrong]["blame"] == f"operation {number} (ADD on DefectRef), by up to 2 steps"
    assert "(MAXIMUM)" in by_model[slow]["slowest"]
    failed = [each for each in report["records"] if each["status"] == "failed"]
    assert re.fullmatch(r"output \d", failed[0]["stimulus"]) and "within 1" in failed[0]["expected"]
    assert f"{wrong[:12]}: output" in result.stdout and "(ADD on DefectRef)" in result.stdout
    assert f"{slow[:12]}: slower by operation" in result.stdout
    (suite,) = ElementTree.parse(paths["junit"]).getroot()
    assert suite.get("failures") == str(len(failed)) and suite.get("tests") == str(len(report["records"]))
    assert wrong[:12] in paths["html"].read_text() and "ADD on DefectRef" in paths["html"].read_text()
    made = invoke("record", "to-vectors", records, folder / "small", "--minimize", *DEFECT)
    assert made.exit_code == 0, made.output
    (case,) = read_cases(folder / "small")
    assert "ADD" in case.main_operations and len(case.main_operations) <= 2
    assert invoke("conformance", "--vectors", folder / "small", "--suite", "generated").exit_code == 0
    found = invoke(
        "conformance",
        "--vectors",
        folder / "small",
        "--suite",
        "generated",
        "--backend",
        "DefectRef",
        "--backends-path",
        PLUGINS,
        "--path",
        "SYNC",
    )
    assert found.exit_code == 1 and "GEN-18" in found.stdout


def test_seeded_defects_are_found_and_reduced(records: Path, tmp_path: Path) -> None:
    check_defects(records, tmp_path, 3)


@pytest.mark.nightly
def test_defects_in_a_whole_day(tmp_path: Path) -> None:
    records = record_day(tmp_path, make_models(10), 100_000, 0.01)
    assert 800 < len(Archive(records).records) < 1200
    check_defects(records, tmp_path, 10)


def test_same_backend_is_equal(records: Path, tmp_path: Path) -> None:
    result = invoke("replay", records, "--backends", "CpuRef", "--clients", 2, "--json", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert {each["check"] for each in report["records"]} == {"equal"} and "recorded from about" in result.stdout


def test_vectors_cover_the_records_and_pass(records: Path, tmp_path: Path) -> None:
    result = invoke("record", "to-vectors", records, tmp_path / "vectors")
    assert result.exit_code == 0, result.output
    cases = list(read_cases(tmp_path / "vectors"))
    recorded = Archive(records).records
    assert 3 <= len(cases) < len(recorded) / 2
    assert {case.name[:12] for case in cases} == {record.model[:12] for record in recorded}
    checked = invoke("conformance", "--vectors", tmp_path / "vectors", "--suite", "generated", "--path", "SYNC")
    assert checked.exit_code == 0, checked.output


def test_damaged_and_failed_records(tmp_path: Path) -> None:
    x = np.array([1, 2], np.float32)
    good, wrong = packed_record(1, [x], [2 * x]), packed_record(2, [x], [3 * x])
    data = header() + packed_model(chain(1)) + good + wrong
    failed = packed_record(4, [x], [], status="missed_deadline_transient")
    silent = packed_record(5, [], [], has_values=False)
    (tmp_path / "a.tar").write_bytes(data + failed + silent + packed_record(6, [x], [2 * x], digest="cd" * 32))
    result = invoke("replay", tmp_path, "--json", tmp_path / "r.json")
    assert result.exit_code == 1 and "records/00000003.npz is lost" in result.stderr
    checks = [each["check"] for each in json.loads((tmp_path / "r.json").read_text())["records"]]
    assert checks == ["equal", "different", "skipped", "skipped", "failed"]
    assert "no operation differs from the reference when it runs alone" in result.stdout
    assert "the model cdcdcdcdcdcd is not in the archive" in result.stdout


def test_mistakes_are_explained(tmp_path: Path) -> None:
    assert_fails(invoke("replay", tmp_path / "none"), 2, "there is no", "none")
    path = write_archive(tmp_path / "a.tar", chain(1), [])
    assert_fails(invoke("replay", path), 2, "has no records")
    assert_fails(invoke("replay", path, "--identity", "token:a"), 2, "records of anonymous; expected token:a")
    path = write_archive(path, chain(1), [([np.ones(2, np.float32)], [np.ones(2, np.float32)])])
    assert_fails(invoke("replay", path, "--target", "localhost:1", "--backends", "CpuRef"), 2, "omit --target")
    assert_fails(invoke("replay", path, "--backends", "None"), 1, "None")
