"""Build of native plug-ins. Tests are skipped without a C compiler."""

import shutil
import subprocess
from pathlib import Path

import pytest

import nnhal_driver.backends.native

HEADERS = Path(nnhal_driver.backends.native.__path__[0])
EXAMPLE = HEADERS / "example" / "Example_Simple_backend.c"
FROZEN = Path(__file__).parent / "frozen"
FROZEN_1_1 = Path(__file__).parent / "frozen_1_1"
_TRAP = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
"""Traps need no sanitizer library, which is not always installed."""


def compiler() -> str:
    """Return the C compiler, or skip the test."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    pytest.skip("there is no C compiler")


def build(source: Path, target: Path, headers: Path = HEADERS, *options: str) -> Path:
    """Build a shared object from one C file without warnings. It traps on undefined behavior."""
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared", *_TRAP]
    subprocess.run([compiler(), *flags, *options, "-I", str(headers), str(source), "-o", str(target)], check=True)
    return target


def example(folder: Path) -> Path:
    """Build the example of the project."""
    return build(EXAMPLE, folder / "Example_Simple_backend.so")


def newer(folder: Path) -> Path:
    """Build the plug-in that uses the additions of header 1.1, with that header."""
    return build(Path(__file__).with_name("newer.c"), folder / "Newer_All_backend.so", FROZEN_1_1)


def frozen(folder: Path) -> Path:
    """Build the frozen plug-in with the frozen header 1.0."""
    return build(FROZEN / "Frozen_All_backend.c", folder / "Frozen_All_backend.so", FROZEN)


def lifecycle(folder: Path) -> Path:
    """Build the plug-in that writes each call of its life to the file NNHAL_TEST_LOG."""
    return build(Path(__file__).with_name("lifecycle.c"), folder / "Test_Lifecycle_backend.so")
