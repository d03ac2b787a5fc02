"""Builds native plug-ins for tests; they are skipped where there is no C compiler."""

import shutil
import subprocess
from pathlib import Path

import pytest

import driver.backends.native

HEADERS = Path(driver.backends.native.__path__[0])
EXAMPLE = HEADERS / "example" / "Example_Simple_backend.c"
FROZEN = Path(__file__).parent / "frozen"
_TRAP = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
"""Needs no library of the compiler's, which is not always installed."""


def compiler() -> str:
    """A C compiler; skips the test where there is none."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    pytest.skip("there is no C compiler")


def build(source: Path, target: Path, headers: Path = HEADERS, *options: str) -> Path:
    """A shared object of one C file, without warnings. It traps where C leaves open what happens."""
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared", *_TRAP]
    subprocess.run([compiler(), *flags, *options, "-I", str(headers), str(source), "-o", str(target)], check=True)
    return target


def example(folder: Path) -> Path:
    """The example of the project."""
    return build(EXAMPLE, folder / "Example_Simple_backend.so")


def newer(folder: Path) -> Path:
    """The plug-in that uses what header 1.1 added."""
    return build(Path(__file__).with_name("newer.c"), folder / "Newer_All_backend.so")


def frozen(folder: Path) -> Path:
    """The plug-in that was built against header 1.0."""
    return build(FROZEN / "Frozen_All_backend.c", folder / "Frozen_All_backend.so", FROZEN)
