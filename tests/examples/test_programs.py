"""The Python programs of examples/, each in a process of its own, against the output that examples/README.md shows."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import Service, start_service, stop_service

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
README = EXAMPLES / "README.md"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
SAMPLE = ("build_model.py", "use_asyncio.py")
"""Programs with each of the clients. The others are started with an address, and pass it on in the same way."""
MAX_LINES = 60
TIME = re.compile(r" *\d+\.\d(?= (?:µs|ms))")


def documented_outputs() -> dict[str, str]:
    """Return the output of each program in README.md: the indented lines of its section."""
    sections = re.findall(r"^## [^\n]*: `(\w+\.py)`\n(.*?)(?=^## |\Z)", README.read_text(), re.MULTILINE | re.DOTALL)
    return {name: "".join(re.findall(r"^    (.*\n)", text, re.MULTILINE)) for name, text in sections}


def without_times(output: str) -> str:
    """Return an output with the same time everywhere. Only times may differ between two runs."""
    return TIME.sub(" 0", output)


def run(program: str, *arguments: str) -> str:
    """Run a program and return its output."""
    command = [sys.executable, str(EXAMPLES / program), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service with an empty cache."""
    running = start_service(tmp_path_factory.mktemp("service"))
    yield running
    stop_service(running)


def test_readme_lists_all_programs() -> None:
    assert sorted(documented_outputs()) == PROGRAMS
    assert sorted(re.findall(r"^\| \[(\w+\.py)\]\(\1\) \|", README.read_text(), re.MULTILINE)) == PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_is_short(program: str) -> None:
    assert len((EXAMPLES / program).read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_uses_the_service_at_an_address(program: str, service: Service) -> None:
    sessions = service.log.read_text().count("session-opened")
    output = run(program, "--target", service.target)
    assert without_times(output) == without_times(documented_outputs()[program])
    assert service.log.read_text().count("session-opened") > sessions


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.nightly) for name in PROGRAMS]
)
def test_program_starts_a_service_without_an_address(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNHAL_CACHE_DIR", str(tmp_path / "cache"))
    assert without_times(run(program)) == without_times(documented_outputs()[program])


def test_classifier_takes_a_model_and_a_picture(service: Service, tmp_path: Path) -> None:
    from PIL import Image

    from nnhal_tools.demo import digits

    images, labels = digits.load_images()
    picture = tmp_path / "digit.bmp"
    Image.fromarray(images[1] * (255 // digits.HIGHEST_PIXEL)).save(picture)
    output = run("classify_image.py", "--target", service.target, str(digits.MODEL), str(picture))
    assert re.findall(r"^class (\d): ", output, re.MULTILINE)[0] == str(labels[1])
