"""Answers of native plug-ins that cannot be true. They are failures of the backend, and others take over."""

from pathlib import Path

import numpy as np
import pytest

from nnhal.types import ErrorStatus, OperationPlacement
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.backends.reference.backend import CpuRef
from tests.driver.backends.native.building import HEADERS, build
from tests.driver.fake_backend import device_of
from tests.driver.hostile_backend import MODEL
from tests.driver.one_operation import execute, prepare

SOURCE = Path(__file__).with_name("broken.c")


def place(tmp_path: Path, *options: str) -> OperationPlacement:
    """Return the placement of an operation that CpuRef computes after a lie of the plug-in."""
    library = build(SOURCE, tmp_path / "Test_Broken_backend.so", HEADERS, *options)
    with device_of(load(file_candidate(library)).backend, CpuRef()) as device:
        outcome = prepare(MODEL, device)
        assert execute(outcome, [np.array([1, -2], np.float32)])[1][0].tolist() == [1, 0]
    assert outcome.placement is not None
    return outcome.placement.operations[0]


@pytest.mark.parametrize("answer", [7, -1])
def test_answer_of_supports_is_0_or_1(tmp_path: Path, answer: int) -> None:
    (refusal,) = place(tmp_path, f"-DSUPPORTS={answer}").refusals
    assert refusal.reason == f"asking it failed: supports returned {answer}; expected 0 or 1"


def test_success_comes_with_a_compiled_subgraph(tmp_path: Path) -> None:
    (refusal,) = place(tmp_path, "-DSUPPORTS=1", "-DCOMPILES=0").refusals
    assert refusal.reason == "it failed to compile this: compile returned status 0 and no compiled subgraph"


@pytest.mark.parametrize("status", [ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT])
def test_deadline_that_was_not_missed(tmp_path: Path, status: int) -> None:
    (refusal,) = place(tmp_path, "-DSUPPORTS=1", f"-DCOMPILES={int(status)}").refusals
    lie = "backend Broken: compile reports a missed deadline that was not missed: "
    assert refusal.reason.startswith(f"it failed to compile this: {lie}compile returned status {int(status)}")
