"""The Dockerfile against the tree: its sources, its packages, its settings, and the commands that it runs."""

import json
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from nnhal.address import Address
from nnhal_service.settings import Settings
from tools.dev import container_lock

ROOT = Path(__file__).resolve().parents[2]


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
    files = [*packages, *project["project"]["license-files"]]
    needed = {file.split("/")[0] for file in files} | {"pyproject.toml", project["project"]["readme"]}
    assert needed <= copied_sources()


def test_commands_of_the_image_exist() -> None:
    (command,) = instructions("CMD")
    assert json.loads(command) == ["serve"]
    variables = dict(re.findall(r"\bNNHAL_(\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    settings = Settings(listen=variables["LISTEN"])
    with pytest.raises(ValueError, match="can be reached from other machines"):
        settings.check_exposure()  # so that nothing is exposed unless the operator asks for it
    (check,) = (part for part in instructions("HEALTHCHECK"))
    (program,) = json.loads(check.partition("CMD ")[2])
    source, target = next(shlex.split(copy) for copy in instructions("COPY") if program in copy)
    assert target == f"/opt/nnhal/bin/{program}" and os.access(ROOT / source, os.X_OK)


def test_variables_of_the_image_are_settings() -> None:
    text = (ROOT / "Dockerfile").read_text()
    names = {name.lower() for name in re.findall(r"\bNNHAL_(\w+)=", text)}
    assert names and names <= set(Settings.model_fields)
    (listen,) = re.findall(r"\bNNHAL_LISTEN=(\S+)", text)
    tcp, unix = (Address.parse(address) for address in Settings(listen=listen).listen)
    assert instructions("EXPOSE") == [str(tcp.port)]
    assert f"'{unix.path}'" in (ROOT / "deploy/container/healthcheck").read_text()


def test_packages_are_checked_against_their_hashes() -> None:
    installs = [run for run in instructions("RUN") if "pip " in run and " install " in run]
    assert len(installs) == 2 and all("--require-hashes -r deploy/container/" in run for run in installs)


def test_stages_are_debian_with_the_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={container_lock.PYTHON}"
    assert instructions("ARG") == ["BASE=debian:bookworm-slim", "GPU_PACKAGES="]  # which has Python 3.11
    assert {stage.split()[0] for stage in instructions("FROM")} == {"${BASE}"}
