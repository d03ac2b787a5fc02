"""Operators and a model of PyTorch through the library, compared with eager mode."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import Service
from tests.nnhal_ndk.torch.environment import torch_python

PROGRAMS = Path(__file__).with_name("programs")
TIMEOUT_S = 1800
FORBIDDEN = {"aten::reshape rank 5": "NNAPI returned error: 4"}  # RESHAPE has a rank of 1 to 4: BAD_DATA
CONVERTIBLE = 85
"""Operators of the program in both layouts; fewer mean that it no longer compares all of them."""


def _run(library: Path, service: Service, program: str) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "NNHAL_TARGET": service.target}
    command = [str(torch_python()), str(PROGRAMS / program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_operators_equal_eager_mode(library_path: Path, ndk_service: Service) -> None:
    lines = [json.loads(line) for line in _run(library_path, ndk_service, "operators.py").splitlines()]
    wrong = [each for each in lines if each["result"] != "equal" and each["operator"] not in FORBIDDEN]
    assert wrong == []
    assert len(lines) >= CONVERTIBLE
    for name, error in FORBIDDEN.items():
        assert [error in each["result"] for each in lines if each["operator"] == name] == [True]


@pytest.mark.nightly
def test_a_mobilenet_equals_eager_mode(library_path: Path, ndk_service: Service) -> None:
    difference = float(_run(library_path, ndk_service, "mobilenet.py"))
    assert difference < 1e-4
