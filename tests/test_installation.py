"""Installation: the names that the wheel installs, and that no folder of the same name gets in their way."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nnhal_tools.demo.digits import MODEL

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = ("client", "driver", "service", "cache", "tools")
PACKAGES = ("nnhal", "nnhal_driver", "nnhal_service", "nnhal_cache", "nnhal_tools")
CHECK = """\
import sys
import nnhal, nnhal_driver, nnhal_service.settings, nnhal_cache, nnhal_tools.cli
print(nnhal.__version__)
for package in (nnhal, nnhal_driver, nnhal_cache, nnhal_tools):
    print(package.__file__)
"""


def python(*arguments: object, path: str = "", folder: Path = ROOT.parent) -> str:
    """Run the interpreter in a folder and return its output."""
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *map(str, arguments)]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def copy_tree(target: Path) -> Path:
    """Copy the files that a build needs, so that it does not write into this folder."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in SOURCE_ROOTS:
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def pip(*arguments: object, folder: Path = ROOT.parent) -> None:
    """Run pip without a network: the build backend is that of this environment."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command, *rest = arguments
    python("-m", "pip", command, *options, *rest, folder=folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--wheel-dir", folder, copy_tree(tmp_path_factory.mktemp("source") / "nnhal"))
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder. Other packages come from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--target", folder, wheel)
    return folder


@dataclass(frozen=True)
class Environment:
    """Environment with the wheel, and with exactly the packages that it requires."""

    folder: Path

    def run(self, *arguments: object, code: int = 0) -> str:
        """Run the interpreter of the environment and return its output, or its errors if the exit code is not 0."""
        command = [str(self.folder / "bin" / "python"), "-P", *map(str, arguments)]
        result = subprocess.run(
            command, cwd=self.folder, env={"HOME": str(self.folder)}, capture_output=True, text=True, check=False
        )
        assert result.returncode == code, result.stderr
        return result.stderr if code else result.stdout

    def read_operations(self) -> int:
        """Return the number of operations of an imported model."""
        code = f"import nnhal.tflite; print(len(nnhal.tflite.load({str(MODEL)!r}).main.operations))"
        return int(self.run("-c", code))


def requirements(wheel: Path, *roots: str) -> set[str]:
    """Return the names of the distributions that requirements need, for example "nnhal[cli]", except nnhal itself."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    own = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    pending = [(each.name, extra) for each in map(Requirement, roots) for extra in ("", *each.extras)]
    names = set[tuple[str, str]]()
    while pending:
        name, extra = pending.pop()
        if (name, extra) in names:
            continue
        names.add((name, extra))
        for text in own if name == "nnhal" else distribution(name).requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                pending += [(requirement.name, extra) for extra in ("", *requirement.extras)]
    return {name for name, _ in names if name != "nnhal"}


def link_packages(environment: Path, names: Iterable[str]) -> Path:
    """Link distributions of this environment into another one, and return the folder of its packages."""
    (site,) = environment.glob("lib/python*/site-packages")
    for name in names:
        files = distribution(name)
        for top in {file.parts[0] for file in files.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(files.locate_file(top))))
    return site


@pytest.fixture(scope="module")
def make_environment(
    wheel: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Environment]:
    """Return a function that makes an environment for an extra. Its packages are links to those of this environment."""

    def make(extra: str) -> Environment:
        folder = tmp_path_factory.mktemp("environment")
        python("-m", "venv", "--without-pip", folder)
        site = link_packages(folder, requirements(wheel, f"nnhal[{extra}]" if extra else "nnhal"))
        (site / "nnhal.pth").write_text(str(installed))
        return Environment(folder)

    return make


def test_every_installed_name_begins_with_nnhal(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in names if not name.startswith("nnhal")} == set()
    assert set(PACKAGES) <= names


def test_engines_are_required_on_linux_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    required = [Requirement(line) for line in re.findall("^Requires-Dist: (.+)$", metadata, re.MULTILINE)]
    for system, is_required in (("linux", True), ("win32", False), ("darwin", False)):
        environment = {"extra": "server", "sys_platform": system}
        names = {each.name for each in required if each.marker is None or each.marker.evaluate(environment)}
        assert ("ai-edge-litert" in names) == is_required
        assert {"grpcio", "typer"} <= names


def test_wheel_has_package_data_and_no_developer_tools(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for file in (
        "nnhal/py.typed",
        "nnhal_backend/py.typed",
        "nnhal_driver/py.typed",
        "nnhal_tools/demo/digits.tflite",
        "nnhal_tools/demo/digits.npz",
        "nnhal_tools/templates/explain.html.j2",
        "nnhal_tools/templates/explain.css",
        "nnhal_tools/templates/explain.js",
        "nnhal_driver/backends/native/nnhal_backend.h",
        "nnhal_driver/backends/native/nnhal_types.h",
        "nnhal_driver/backends/plugins/templates/pyproject.toml.txt",
        "nnhal_service/operating/web/static/vendor/uplot-LICENSE.txt",
    ):
        assert file in names
    page = ROOT / "service" / "nnhal_service" / "web" / "static"
    for path in page.rglob("*.*"):
        assert f"nnhal_service/operating/web/static/{path.relative_to(page)}" in names
    assert [name for name in names if "benchmark/" in name or "dev/" in name or "tests/" in name] == []


def test_installed_wheel_runs(installed: Path) -> None:
    version, *files = python("-c", CHECK, path=str(installed), folder=installed.parent).split()
    assert all(Path(file).is_relative_to(installed) for file in files)
    printed = python(installed / "bin" / "nnhal", "--version", path=str(installed), folder=installed.parent)
    assert printed == f"nnhal {version}\n"
    assert "Usage: nnhal" in python("-m", "nnhal_tools.cli", "--help", path=str(installed), folder=installed.parent)
    assert (installed / f"nnhal-{version}.dist-info").is_dir()


def test_script_beside_a_clone_called_nnhal_imports_the_package(installed: Path, tmp_path: Path) -> None:
    """The clone has no `__init__.py`, so it is a namespace package at most, and the real package wins."""
    copy_tree(tmp_path / "nnhal")
    script = tmp_path / "script.py"
    script.write_text(CHECK)
    _, *files = python(script, path=str(installed), folder=tmp_path).split()
    assert all(Path(file).is_relative_to(installed) for file in files)


@pytest.mark.parametrize("has_init", [False, True])
def test_folders_with_names_of_the_source_roots_do_no_harm(installed: Path, tmp_path: Path, has_init: bool) -> None:
    for name in ("tools", "service", "driver", "cache", "client", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cli.py").write_text("raise AssertionError('imported from the wrong folder')")
        if has_init:
            (tmp_path / name / "__init__.py").write_text("raise AssertionError('imported from the wrong folder')")
    path = os.pathsep.join([".", str(installed)])
    assert "Usage: nnhal" in python("-m", "nnhal_tools.cli", "--help", path=path, folder=tmp_path)
    _, *files = python("-c", CHECK, path=path, folder=tmp_path).split()
    assert all(Path(file).is_relative_to(installed) for file in files)


def test_editable_installation_runs(tmp_path: Path) -> None:
    """It adds the source roots, and nothing else of the clone, to the path."""
    clone = copy_tree(tmp_path / "nnhal")
    python("-m", "venv", "--without-pip", tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    pip("install", "--target", site, "--editable", clone)
    (tmp_path / "script.py").write_text(CHECK)
    others = next(path for path in sys.path if path.endswith("site-packages"))
    # other packages come from this environment, whose own editable installation does not work through PYTHONPATH
    command = [tmp_path / "venv" / "bin" / "python", tmp_path / "script.py"]
    environment = {**os.environ, "PYTHONPATH": others}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    _, *files = result.stdout.split()
    assert all(Path(file).is_relative_to(clone) for file in files)
    (links,) = site.glob("*.pth")
    assert {Path(line) for line in links.read_text().split()} == {clone / name for name in SOURCE_ROOTS}


def test_client_alone_prints_its_version_and_names_the_missing_extra(
    make_environment: Callable[[str], Environment], installed: Path
) -> None:
    environment = make_environment("")
    version = environment.run("-c", "import nnhal; print(nnhal.__version__)")
    for program in ([installed / "bin" / "nnhal"], ["-m", "nnhal"]):
        assert environment.run(*program, "--version") == f"nnhal {version}"
        for arguments, extra in ((["info"], "cli"), ([], "cli"), (["serve"], "server")):
            missing = f"nnhal: this command needs more packages: pip install 'nnhal[{extra}]'\n"
            assert environment.run(*program, *arguments, code=2) == missing
    failed = environment.run("-c", "import nnhal; nnhal.connect()", code=1)
    assert failed.splitlines()[-1].endswith("needs more packages: pip install 'nnhal[server]'")
    assert environment.read_operations() > 0


def test_extra_of_earlier_versions_can_be_installed(make_environment: Callable[[str], Environment]) -> None:
    assert make_environment("tflite").read_operations() > 0


def test_server_extra_serves(make_environment: Callable[[str], Environment]) -> None:
    environment = make_environment("server")
    assert environment.run("-m", "nnhal", "--version").startswith("nnhal ")
    assert "CpuAcc" in environment.run("-m", "nnhal", "info")  # starts `nnhal serve`


def test_cli_extra_runs_and_explains_models(make_environment: Callable[[str], Environment]) -> None:
    environment = make_environment("cli")
    assert environment.run("-m", "nnhal", "--version").startswith("nnhal ")
    assert "probability" in environment.run("-m", "nnhal", "run", MODEL)
    environment.run("-m", "nnhal", "explain", MODEL, "--html", environment.folder / "graph.html")
    assert (environment.folder / "graph.html").stat().st_size > 0


@dataclass(frozen=True)
class AuthorEnvironment:
    """Environment of a backend author: nnhal, and exactly the packages that a kit names. Its pip has no network."""

    folder: Path

    def run(self, command: str, working_folder: Path) -> str:
        """Run a line of a shell and return its output."""
        environment = {
            "HOME": str(self.folder),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads the variable as the value of --build-isolation
        }
        result = subprocess.run(
            ["bash", "-c", command], cwd=working_folder, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout


def author_environment(wheel: Path, kit: Path, folder: Path) -> AuthorEnvironment:
    """Return an environment for a kit. Its packages are links, but nnhal and pip are its own."""
    project = tomllib.loads((kit / "pyproject.toml").read_text())
    roots = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    roots += project["project"]["optional-dependencies"]["test"]
    python("-m", "venv", folder)
    environment = AuthorEnvironment(folder)
    environment.run("pip uninstall --yes setuptools", folder)  # some versions of Python bring an old one
    site = link_packages(folder, requirements(wheel, *roots))
    (folder / "bin" / "pytest").write_text('#!/bin/sh\nexec python3 -m pytest "$@"\n')
    (folder / "bin" / "pytest").chmod(0o755)
    environment.run(f"pip install --no-deps {wheel}", folder)
    assert (site / "nnhal_backend").is_dir()
    return environment


@pytest.mark.nightly
@pytest.mark.parametrize("language", ["python", "c"])
def test_kit_of_a_new_backend_installs_and_passes(language: str, wheel: Path, installed: Path, tmp_path: Path) -> None:
    """The commands of its README, in an environment with only what its pyproject.toml names."""
    if language == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    kit = tmp_path / "kit"
    arguments = ("new-backend", "Acme", "Npu", "--lang", language, "--folder", kit)
    others = next(path for path in sys.path if path.endswith("site-packages"))
    python("-m", "nnhal", *arguments, path=os.pathsep.join([str(installed), others]), folder=tmp_path)
    environment = author_environment(wheel, kit, tmp_path / "environment")
    install, test, conformance = re.findall("^    (.+)$", (kit / "README.md").read_text(), re.MULTILINE)

    environment.run(install, kit)
    ready = r"^ready +Npu \S+ +package acme-npu-nnhal-backend 0\.1 \(entry point Acme_Npu\)"
    assert re.search(ready, environment.run("nnhal backends", tmp_path), re.MULTILINE)
    assert re.search(r"\b[4-9] passed", environment.run(test, kit))
    plugin = next(kit.glob("Acme_Npu_backend.[ps][yo]"))
    assert environment.run(f"nnhal backends doctor {plugin}", tmp_path).splitlines()[-1] == "verdict      ready"
    report = environment.run(f"{conformance} --suite basic,generated --path SYNC,BURST", kit)
    assert re.search(r"^ *Npu \S+ +[2-9] of \d+ ", report, re.MULTILINE), report
    assert ", 0 failed, " in report
