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


def _run(folder: Path, service: Service, flags: tuple[str, ...], environment: dict[str, str]) -> None:
    """Compile the library and the program with flags, and run it."""
    library = build(folder, flags=(*flags, "-g", "-Werror"))
    program = folder / "concurrency"
    link = [f"-L{library.parent}", "-lneuralnetworks", "-lpthread"]
    source = str(FOLDER / "concurrency.cpp")
    options = ["-std=c++17", "-g", *STRICT, "-pedantic", *flags, f"-I{include_folder()}", source, "-o", str(program)]
    subprocess.run(["c++", *options, *link], check=True)
    variables = {**os.environ, **environment, "LD_LIBRARY_PATH": str(folder), "NNHAL_TARGET": service.target}
    done = subprocess.run([program], env=variables, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitizers_find_nothing(library_path: Path, ndk_service: Service, tmp_path: Path, sanitizer: str) -> None:
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=undefined")
    _run(tmp_path, ndk_service, flags, SANITIZERS[sanitizer])
