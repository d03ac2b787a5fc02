"""Environment with PyTorch for CPUs and torchvision, installed from the package index."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "build" / "torch"
TORCH = "torch==2.13.0+cpu"  # the wheels of other versions download CUDA
PACKAGES = (
    TORCH,
    "torchvision==0.28.0",
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "numpy",
    "pillow",
    "setuptools",
    "sympy",
    "typing-extensions",
)
"""Everything that they import; pip does not see the packages for GPUs, which they require."""

TIMEOUT_S = 3600


def torch_python() -> Path:
    """Return the Python of the environment, which is installed once. Skips the test where that is impossible."""
    python = FOLDER / "bin" / "python"
    complete = FOLDER / "complete"
    if not complete.is_file():
        _require(sys.executable, "-m", "venv", "--clear", str(FOLDER))
        _require(str(python), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES)
        complete.touch()
    return python


def _require(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0:
        pytest.skip(f"PyTorch cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
