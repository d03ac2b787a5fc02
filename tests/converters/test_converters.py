"""Models that converters write run on nnhal with the results of their frameworks.

Each converter is installed from its packages into an environment of its own under build/converters, which needs a
package index and takes minutes. A converter that cannot be installed is skipped.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from tests.converters.programs import PROGRAMS
from tests.end_to_end.support.service_process import start_service, stop_service

ENVIRONMENTS = Path(__file__).parents[2] / "build" / "converters"
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a service."""
    service = start_service(tmp_path_factory.mktemp("service"))
    yield service.target
    stop_service(service)


def python_with(packages: tuple[str, ...]) -> Path:
    """Return the interpreter of an environment with packages."""
    folder = ENVIRONMENTS / re.sub(r"\W", "_", "-".join(packages))
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        installed = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=False)
        if installed.returncode:
            pytest.skip(f"cannot install {', '.join(packages)}")
        (folder / "installed").touch()
    return python


@pytest.mark.parametrize("name", PROGRAMS)
def test_converted_model_has_the_results_of_its_framework(name: str, target: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    subprocess.run([python_with(program.packages), "-c", program.code], cwd=tmp_path, check=True)
    with nnhal.load(tmp_path / "model.tflite", target) as model:
        (output,) = model(np.load(tmp_path / "input.npy"))
    np.testing.assert_allclose(output, np.load(tmp_path / "expected.npy"), rtol=1e-4, atol=1e-5)
