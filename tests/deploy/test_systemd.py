"""The units of systemd: they are valid, strict, and fit the service."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnhal_service.settings import Settings

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
_PROGRAM = "/opt/nnhal/bin/nnhal"
MAX_EXPOSURE = 2.0
"""Exposure that `systemd-analyze security` may report; 10 is the worst."""


class Unit(configparser.RawConfigParser):
    """A unit. Repeated keys have their values joined by spaces."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False)
        merged: dict[str, list[str]] = {}
        section = ""
        for line in (UNITS / name).read_text().splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif line and not line.startswith("#"):
                key, _, value = line.partition("=")
                merged.setdefault(f"{section}.{key}", []).append(value)
        for path, values in merged.items():
            section, _, key = path.partition(".")
            if not self.has_section(section):
                self.add_section(section)
            self.set(section, key, " ".join(values))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with the units, for a program that exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(_PROGRAM, sys.executable))
    return tmp_path


def analyze(*arguments: object) -> str:
    done = subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_units_are_valid(installed: Path) -> None:
    assert analyze("verify", *sorted(installed.iterdir())) == ""


def test_the_service_is_strict(installed: Path) -> None:
    text = analyze("security", "--offline=yes", "--no-pager", installed / "nnhal.service")
    exposure = re.search(r"Overall exposure level for nnhal.service: ([\d.]+)", text)
    assert exposure and float(exposure[1]) <= MAX_EXPOSURE, text


def test_variables_are_settings() -> None:
    variables = Unit("nnhal.service")["Service"]["Environment"].split()
    names = [name for variable in variables if (name := variable.partition("=")[0]).startswith("NNHAL_")]
    assert names and {name.removeprefix("NNHAL_").lower() for name in names} <= set(Settings.model_fields)


def test_the_service_manager_hears_from_the_supervisor() -> None:
    service = Unit("nnhal.service")["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert float(service["WatchdogSec"]) >= 10  # the supervisor gives three signs of life in this time


def test_sockets_have_an_address_of_the_default_settings() -> None:
    assert set(Settings().listen) <= set(Unit("nnhal.socket")["Socket"]["ListenStream"].split())
    assert Unit("nnhal.socket")["Install"]["WantedBy"] == "sockets.target"
