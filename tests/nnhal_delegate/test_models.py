"""Real models in LiteRT's interpreter in Python: results equal those of LiteRT, and the device runs all it can."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.support.service_process import Service
from tests.nnhal_delegate.python_host import Host, load, require_equal
from tests.shared import INEXACT_MODELS, SHARED

pytestmark = pytest.mark.slow

MODELS = sorted((SHARED / "models").glob("*.tflite"))
DIVIDED = {
    "group_norm": "STABLEHLO_COMPOSITE",
    "micro_wakeword_alexa": "READ_VARIABLE",
    "trained_lstm": "UNIDIRECTIONAL_SEQUENCE_LSTM",
}
"""Models of which LiteRT runs nodes, and one of these."""
STEPS = 10
"""Largest difference of models that CpuAcc computes with other kernels than LiteRT."""


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_results_equal_those_of_litert(path: Path, delegate_path: Path, delegate_service: Service) -> None:
    host, expected = Host(path, load(delegate_path, delegate_service.target)), Host(path)
    for seed in range(2):
        inputs = expected.samples(seed)
        actual, wanted = host.run(inputs), expected.run(inputs)
        if path.stem not in INEXACT_MODELS:
            require_equal(actual, wanted)
            continue
        for a, b in zip(actual, wanted, strict=True):
            np.testing.assert_allclose(a.astype(int), b.astype(int), rtol=0, atol=STEPS)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_device_runs_all_nodes(
    path: Path, delegate_path: Path, delegate_service: Service, delegate_log: list[str]
) -> None:
    Host(path, load(delegate_path, delegate_service.target, log="info"))
    counts = [re.search(r"runs (\d+) of (\d+) nodes", line) for line in delegate_log]
    is_whole = all(match[1] == match[2] for match in counts if match)
    assert is_whole == (path.stem not in DIVIDED), delegate_log
    assert DIVIDED.get(path.stem, "") in "\n".join(delegate_log)
