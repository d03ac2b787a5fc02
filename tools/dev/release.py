"""The files of a release: `python -m tools.dev.release [FOLDER]`, or `make release`.

It builds the sdist and the wheel from the files of the commit alone, and checks them: their descriptions, what they
contain, and that the wheel works in an empty environment without a network. It writes a bill of materials of the
packages that the container image has, and the digests of all files. Each of these files has the same bytes each time.

The version is that of the tag, `v1.0.0`, which must agree with `nnhal.version`. A commit without a tag makes files of a
development version, for example `1.0.0.dev0+g12ab34cd56ef`.
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION_FILE = "client/nnhal/version.py"
_FORBIDDEN = re.compile(r"(^|/)(tests|benchmark|dev|__pycache__|\.ci|\.git)/")
"""Folders that a wheel does not have."""
TRIAL = """
import sys
import nnhal
from nnhal_tools.demo import digits
pictures, labels = digits.load_images()
with nnhal.connect(*sys.argv[1:]) as device:
    outputs = device.prepare(digits.MODEL).result().execute([digits.scale_pixels(pictures)[:1, None][0]])
assert outputs[0].argmax() == labels[0]
"""
"""Program that classifies a digit, with a service of its own or at the address in its argument."""


class ReleaseError(Exception):
    """A release cannot be made, or is not right."""


def main(arguments: Sequence[str]) -> None:
    """Make the files of a release in a folder, by default `dist`."""
    folder = Path(arguments[0] if arguments else ROOT / "dist").resolve()
    try:
        version = make(folder)
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size:>10}  {file.name}")
    print(f"release {version} is in {folder}")


def make(folder: Path) -> str:
    """Make and check the files. Return their version.

    Raises:
        ReleaseError: the tree has changes, the tag has another version, or a check fails.
    """
    if git("status", "--porcelain"):
        raise ReleaseError("the tree has changes: commit or remove them")
    version = find_version()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = export(Path(temporary) / "nnhal", version)
        variables = {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct"), "PYTHONPATH": ""}
        run("-m", "build", "--no-isolation", "--outdir", folder, source, variables=variables)
        sdist, wheel = next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))
        run("-m", "twine", "check", "--strict", sdist, wheel)
        check_contents(sdist, wheel)
        _try_offline(wheel, Path(temporary) / "environment")
    _write_materials(folder / f"nnhal-{version}.cdx.json")
    write_digests(folder)
    return version


def write_digests(folder: Path) -> None:
    """Write the digests of all files of a release."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    digests = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in files]
    (folder / "SHA256SUMS").write_text("\n".join(digests) + "\n")


def find_version() -> str:
    """Return the version of the tag at this commit, or a development version."""
    match = re.search(r'^__version__ = "(.+)"$', (ROOT / VERSION_FILE).read_text(), re.MULTILINE)
    assert match is not None
    tags = [tag.removeprefix("v") for tag in git("tag", "--points-at", "HEAD", "v*").split()]
    if not tags:
        return f"{match[1]}.dev0+g{git('rev-parse', '--short=12', 'HEAD')}"
    if match[1] not in tags:
        raise ReleaseError(f"the tag is v{tags[0]}, but {VERSION_FILE} says {match[1]}")
    return match[1]


def export(folder: Path, version: str) -> Path:
    """Write the files of the commit into a folder, with the version and the revision. Return the folder."""
    revision = git("rev-parse", "--short=12", "HEAD")
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    file = folder / VERSION_FILE
    text = re.sub('^__version__ = ".*"$', f'__version__ = "{version}"', file.read_text(), flags=re.MULTILINE)
    file.write_text(re.sub('^REVISION = ""$', f'REVISION = "{revision}"', text, flags=re.MULTILINE))
    return folder


def check_contents(sdist: Path, wheel: Path) -> None:
    """Check that a wheel has the packages and nothing else, and that the sdist has what builds them.

    Raises:
        ReleaseError: a file is missing, or does not belong there.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if wrong := [name for name in names if _FORBIDDEN.search(name) or not name.startswith("nnhal")]:
        raise ReleaseError(f"{wheel.name} contains {wrong[0]}")
    with tarfile.open(sdist) as tar:
        sources = {name.partition("/")[2] for name in tar.getnames()}
    packaged = {name for name in names if ".dist-info/" not in name}
    roots = ("client", "driver", "service", "cache", "tools")
    for name in sorted(packaged):
        if not any(f"{root}/{name}" in sources for root in roots):
            raise ReleaseError(f"{sdist.name} lacks {name}, which {wheel.name} has")


def _try_offline(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment without a network, and classify a digit with it.

    The packages that it requires are those of this environment, behind the wheel.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    run("-m", "pip", "--python", python, "install", *options, wheel)
    packages = [Path(path) for path in sys.path if path.endswith("site-packages")]
    (site / "required.pth").write_text("\n".join(map(str, packages)) + "\n")
    # an own cache, so that nothing of this machine decides the answer
    variables = {"PYTHONPATH": "", "NNHAL_CACHE_DIR": str(folder / "cache")}
    run("-P", "-c", TRIAL, program=python, variables=variables)


def _write_materials(file: Path) -> None:
    """Write the bill of materials of the container image, in the form of CycloneDX."""
    options = ("--output-reproducible", "--of", "JSON", "--output-file", file, "--pyproject", ROOT / "pyproject.toml")
    run("-m", "cyclonedx_py", "requirements", *options, ROOT / "deploy/container/requirements.lock")


def run(*arguments: object, program: Path = Path(sys.executable), variables: Mapping[str, str] | None = None) -> None:
    """Run Python. Raise ReleaseError with its output if it fails."""
    command = [str(program), *map(str, arguments)]
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, env=environment, cwd=ROOT.anchor, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command[1:4])} failed:\n{done.stdout}{done.stderr}".rstrip())


def git(*arguments: str) -> str:
    """Return what git prints about this repository."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
