"""The Dockerfile against the tree: its sources, the extra that it installs, and the command that it runs."""

import re
import shlex
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from nnhal_tools.cli import app

ROOT = Path(__file__).resolve().parent.parent


def instructions(keyword: str) -> list[str]:
    """Return the arguments of each instruction with a keyword."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [line.removeprefix(f"{keyword} ") for line in lines if line.startswith(f"{keyword} ")]


def copied_sources() -> set[str]:
    copies = [shlex.split(copy) for copy in instructions("COPY") if not copy.startswith("--from=")]
    return {source for *sources, _ in copies for source in sources}


def test_every_copied_source_exists_and_is_not_ignored() -> None:
    first, *patterns = (ROOT / ".dockerignore").read_text().split()
    included = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    assert first == "*"
    for source in copied_sources():
        assert (ROOT / source).exists() and source.removeprefix("./") in included, source


def test_everything_that_the_build_needs_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {package.split("/")[0] for package in packages} | {"pyproject.toml", project["project"]["readme"]}
    assert needed | set(project["project"]["license-files"]) <= copied_sources()


def test_installed_extra_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = (run for run in instructions("RUN") if "pip install" in run)
    extra = re.search(r"'\.\[(\w+)\]'$", install)
    assert extra and extra[1] in project["optional-dependencies"]


def test_every_command_of_the_image_exists() -> None:
    text = (ROOT / "Dockerfile").read_text()
    commands = re.findall(r'CMD \["(?:nnhal", ")?(\w+)"', text)
    assert commands == ["info", "serve"]
    options = set(re.findall(r'"(--\w+)"', text))
    shown = "".join(CliRunner().invoke(app, [command, "--help"]).output for command in commands)
    assert options and {option for option in options if option not in shown} == set()


def test_stages_have_the_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert {stage.split()[0] for stage in instructions("FROM")} == {"python:3.11-slim"}
