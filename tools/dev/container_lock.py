"""Pinned packages of the container image, with their hashes: deploy/container/*.lock.

`python -m tools.dev.container_lock --write` resolves them anew with pip-tools, from PyPI, for the Python that runs it.
A test compares the files with pyproject.toml, without a network.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "container"
EXTRAS = ("server", "tracing")
"""Extras of nnhal that the image has."""
PYTHON = "3.11"
"""Python of Debian 12, from which the image is made."""
_DIGEST = "# requirements: "


def requirements() -> dict[Path, list[str]]:
    """Return the direct requirements of each lock file."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {
        FOLDER / "requirements.lock": sorted(set(_with_extras(pyproject["project"], EXTRAS))),
        FOLDER / "build.lock": sorted([*pyproject["build-system"]["requires"], "pip"]),
    }


def digest(required: Sequence[str]) -> str:
    """Return the line of a lock file that tells for which requirements it was made."""
    return _DIGEST + hashlib.sha256("\n".join(required).encode()).hexdigest()


def pins(text: str) -> dict[str, tuple[str, int]]:
    """Return the version and the number of hashes of each package in a lock file."""
    found: dict[str, tuple[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if "==" in line and not line.startswith((" ", "#")):
            name, _, version = line.split(";")[0].rstrip(" \\").partition("==")
            found[name] = (version, 0)
        elif "--hash=sha256:" in line:
            version, count = found[name]
            found[name] = (version, count + 1)
    return found


def lock(required: Sequence[str], tools: Path) -> str:
    """Return the text of a lock file for some requirements, of current versions from PyPI.

    `tools` is the folder of the programs of an environment with pip-tools.
    """
    command = [tools / "pip-compile", "-", "--quiet", "--generate-hashes", "--allow-unsafe", "--strip-extras"]
    options = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--output-file", "-"]
    text = "\n".join(required)
    done = subprocess.run([*command, *options], input=text, capture_output=True, text=True, check=True)
    head = "# Packages of the container image. `python -m tools.dev.container_lock --write` updates them."
    return f"{head}\n{digest(required)}\n{done.stdout.lstrip()}"


def _with_extras(project: dict[str, object], extras: Sequence[str]) -> Iterator[str]:
    dependencies, optional = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list) and isinstance(optional, dict)
    yield from dependencies
    for extra in extras:
        for text in optional[extra]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                yield from _with_extras(project, sorted(requirement.extras))
            else:
                yield text


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True, help="write the lock files; needs PyPI")
    parser.parse_args()
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        parser.error(f"it must run with Python {PYTHON}, as in the image")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "pip-tools"], check=True)
        for path, required in requirements().items():
            path.write_text(lock(required, Path(folder, "bin")))


if __name__ == "__main__":
    main()
