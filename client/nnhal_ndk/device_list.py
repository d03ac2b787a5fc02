"""Configuration of the devices: addresses of services, from the environment or a file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnhal.errors import invalid_argument

REFERENCE_NAME = "nnapi-reference"
"""Name of the device that the documentation of Android gives to its CPU implementation."""

_OPTIONS = frozenset({"timeout", "transport", "tls", "ca", "cert", "key", "server_name", "token"})
_KEYS = _OPTIONS | {"target", "device", "name"}


@dataclass(frozen=True)
class DeviceSource:
    """Address of a device.

    Attributes:
        target: address of its service; None for a service that this process starts.
        device: name of the device there; "" for the first.
        name: name of the device for the program; "" for the one that the service gives it.
        options: further options of `nnhal.connect`.
    """

    target: str | None = None
    device: str = ""
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


REFERENCE = DeviceSource(name=REFERENCE_NAME)
"""Service in a child process, which starts when it is first used."""


def configured_sources(environment: Mapping[str, str] | None = None) -> list[DeviceSource]:
    """Return the configured devices: those of NNHAL_TARGET, else those of the file, else an embedded service.

    Raises:
        HalError: INVALID_ARGUMENT: the file cannot be used.
    """
    variables = os.environ if environment is None else environment
    if targets := [each.strip() for each in variables.get("NNHAL_TARGET", "").split(",") if each.strip()]:
        return [DeviceSource(target) for target in targets]
    path = _file(variables)
    if path is not None:
        return _read_file(path)
    return [DeviceSource(name="nnhal")]


def _file(variables: Mapping[str, str]) -> Path | None:
    if named := variables.get("NNHAL_DEVICES"):
        return Path(named)
    try:
        base = variables.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        default = Path(base) / "nnhal" / "devices.toml"
        return default if default.is_file() else None
    except (RuntimeError, OSError):  # the user has no home folder, or cannot read it
        return None


def _read_file(path: Path) -> list[DeviceSource]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise invalid_argument(f"the list of devices {path} cannot be read: {error}") from None
    entries = content.get("devices")
    if not isinstance(entries, list) or not entries or not all(isinstance(each, dict) for each in entries):
        raise invalid_argument(f"{path} has no [[devices]]")
    return [_source(path, number, entry) for number, entry in enumerate(entries)]


def _source(path: Path, number: int, entry: Mapping[str, Any]) -> DeviceSource:
    if unknown := sorted(set(entry) - _KEYS):
        raise invalid_argument(f"{path}: device {number} has unknown keys {', '.join(unknown)}; there are {_KEYS}")
    if not isinstance(entry.get("target"), str):
        raise invalid_argument(f"{path}: device {number} has no target")
    options = {key: value for key, value in entry.items() if key in _OPTIONS}
    return DeviceSource(entry["target"], str(entry.get("device", "")), str(entry.get("name", "")), options)
