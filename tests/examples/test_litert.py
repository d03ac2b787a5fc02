"""The program for LiteRT in examples/litert: the same output with both imports, and with a service elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import start_service, stop_service
from tests.shared import shared

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "litert" / "label_image.py"
OURS = "from nnhal.litert import Interpreter"
LITERT = "from ai_edge_litert.interpreter import Interpreter"

pytest.importorskip("ai_edge_litert.interpreter")
pytest.importorskip("PIL")


def run(program: Path, *arguments: str, target: str = "") -> str:
    """Run a program and return its output."""
    command = [sys.executable, str(program), *arguments]
    environment = {**os.environ, "NNHAL_TARGET": target}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Return the program with LiteRT's import."""
    text = PROGRAM.read_text()
    assert text.count(OURS) == 1
    program = tmp_path / "examples" / "litert" / PROGRAM.name
    program.parent.mkdir(parents=True)
    program.write_text(text.replace(OURS, LITERT))
    program.parent.with_name("digit.png").write_bytes(PROGRAM.parent.with_name("digit.png").read_bytes())
    return program


def test_program_prints_the_same_with_both_imports(original: Path, tmp_path: Path) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    service = start_service(folder)
    try:
        output = run(PROGRAM, target=service.target)
        assert service.log.read_text().count("session-opened") == 1
    finally:
        stop_service(service)
    assert output == run(original)
    assert output.startswith("class 4: ")


@pytest.mark.slow
def test_program_prints_the_same_for_a_real_model(original: Path) -> None:
    model, picture = shared("models/mobilenet_v2_1.0_224_quant.tflite"), shared("models/cat.bmp")
    assert run(PROGRAM, str(model), str(picture)) == run(original, str(model), str(picture))
