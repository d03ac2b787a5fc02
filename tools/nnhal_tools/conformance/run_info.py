"""Facts that identify a run in its reports: the device, its backends, and the versions of the software."""

import contextlib
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nnhal import wire
from nnhal.types import BackendInfo, BackendState
from nnhal.version import __version__
from nnhal_tools.conformance.check import NotServiceSpecific, UnsupportedCase
from nnhal_tools.conformance.device.target import Target

DEFAULT_DEVICE = "(default)"
"""Text for the default device of a service that does not list its devices."""

_GIT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class RunInfo:
    """Description of a run. Texts are "" where a fact is unknown.

    Attributes:
        target: the address of the service.
        device: the name of the device, or DEFAULT_DEVICE.
        device_version: the versions that the device reports.
        backends: the backends of the device, the preferred first; () if it does not list them.
        nnhal_commit: the commit of this harness, if it runs from a checkout.
        commit: the commit of the current folder, usually that of the backend under test.
    """

    target: str
    device: str = DEFAULT_DEVICE
    device_version: str = ""
    service_version: str = ""
    backends: tuple[BackendInfo, ...] = ()
    nnhal_version: str = __version__
    nnhal_commit: str = ""
    commit: str = ""

    @property
    def facts(self) -> dict[str, str]:
        """The texts by name."""
        names = (each.name for each in fields(self) if each.name != "backends")
        return {name: getattr(self, name) for name in names}

    @property
    def ready_backends(self) -> tuple[BackendInfo, ...]:
        """The backends that the device uses."""
        return tuple(backend for backend in self.backends if backend.state == BackendState.READY)

    def describe(self) -> str:
        """Return the facts in one line."""
        versions = f"nnhal {self.nnhal_version}" + (f" at commit {self.nnhal_commit}" if self.nnhal_commit else "")
        device = "default device" if self.device == DEFAULT_DEVICE else f"device {self.device}"
        facts = [f"{device} of {self.target}", self.device_version, f"checked by {versions}"]
        if self.commit and self.commit != self.nnhal_commit:
            facts.append(f"in a checkout of {self.commit}")
        return ", ".join(filter(None, facts))


def describe_run(target: Target, label: str = "") -> RunInfo:
    """Return the facts about a run against a device. `label`: words for the target; by default its address."""
    devices = _call_optional(target, "Device.ListDevices")
    version = _call_optional(target, "Device.GetVersionString")
    backends = _call_optional(target, "Device.ListBackends")
    return RunInfo(
        target=label or target.address,
        device=target.device_name or next(iter(devices.devices if devices else ()), DEFAULT_DEVICE),
        device_version=version.version if version else "",
        service_version=target.opened.service_version,
        backends=tuple(map(wire.to_backend_info, backends.backends)) if backends else (),
        nnhal_commit=_commit_of_file(Path(__file__)),
        commit=_commit_of_folder(Path.cwd()),
    )


def _call_optional(target: Target, name: str) -> Any:
    """Return the response of a call, or None if the device does not answer it. The checks test whether it must."""
    with contextlib.suppress(UnsupportedCase, NotServiceSpecific):
        return target.call(name)[1]
    return None


def _commit_of_file(file: Path) -> str:
    """Return the commit of the checkout that a file belongs to, or ""."""
    # an installed package may lie in a checkout that has nothing to do with it
    return _commit_of_folder(file.parent) if _run_git(file.parent, "ls-files", file.name) else ""


def _commit_of_folder(folder: Path) -> str:
    """Return the commit of a checkout, with "-dirty" if tracked files have changed; "" for other folders."""
    return _run_git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _run_git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()
