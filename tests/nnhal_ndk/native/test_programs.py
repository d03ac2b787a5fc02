"""The header's facts, and programs in C++ that sanitizers watch."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nnhal_ndk.build import build, include_folder
from tests.end_to_end.support.service_process import Service

FOLDER = Path(__file__).parent
TIMEOUT_S = 900
STRICT = ("-Wall", "-Wextra", "-Werror")
SANITIZERS = {
    "thread": {"TSAN_OPTIONS": f"suppressions={FOLDER / 'thread.supp'}"},
    "address,undefined": {"LSAN_OPTIONS": f"print_suppressions=0:suppressions={FOLDER / 'leak.supp'}"},
}

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


@pytest.mark.parametrize("language", ["-xc -std=c11", "-xc++ -std=c++11", "-xc++ -std=c++17"])
def test_the_header_has_the_documented_numbers_and_layouts(library_path: Path, language: str) -> None:
    options = [*language.split(), *STRICT, "-fsyntax-only", f"-I{include_folder()}"]
    subprocess.run(["c++", *options, str(FOLDER / "facts.c")], check=True)


def _compile(name: str, folder: Path, library: Path, *flags: str) -> Path:
    """Compile a program of this folder."""
    program = folder / name
    link = [f"-L{library.parent}", "-lneuralnetworks", "-lpthread"]
    options = ["-std=c++17", "-g", *STRICT, "-pedantic", *flags, f"-I{include_folder()}", "-o", str(program)]
    subprocess.run(["c++", *options, str(FOLDER / f"{name}.cpp"), *link], check=True)
    return program


def _run(command: list[str], library: Path, service: Service, environment: dict[str, str]) -> str:
    """Run a program and return what it prints."""
    variables = {**os.environ, **environment, "LD_LIBRARY_PATH": str(library.parent), "NNHAL_TARGET": service.target}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitizers_find_nothing(library_path: Path, ndk_service: Service, tmp_path: Path, sanitizer: str) -> None:
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=undefined")
    library = build(tmp_path, flags=(*flags, "-g", "-Werror"))
    program = _compile("concurrency", tmp_path, library, *flags)
    assert _run([str(program)], library, ndk_service, SANITIZERS[sanitizer]) == "done\n"


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["return", "thread", "calls"])
def test_a_program_ends_while_the_library_computes(
    library_path: Path, ndk_service: Service, tmp_path: Path, end: str
) -> None:
    program = _compile("exits", tmp_path, library_path)
    assert _run([str(program), end], library_path, ndk_service, {}) == "computing\nlate calls\n"
