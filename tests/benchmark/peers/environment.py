"""Environments of the other servers: virtual environments of their own, because their requirements contradict ours."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_INSTALL_S = 900


class Unavailable(Exception):
    """A server cannot be installed or started here. The message says why."""


@dataclass(frozen=True)
class Environment:
    """Virtual environment of a server, with pinned requirements.

    Attributes:
        name: name of the server.
        requirements: what pip installs.
    """

    name: str
    requirements: Sequence[str]

    def create(self, folder: Path) -> Path:
        """Create the environment if it does not exist, and return its folder.

        Args:
            folder: folder for environments.

        Raises:
            Unavailable: pip cannot install the requirements.
        """
        key = hashlib.sha256("\n".join([sys.version, *self.requirements]).encode()).hexdigest()[:12]
        root = folder / f"{self.name}-{key}"
        if (root / "complete").exists():
            return root
        commands = [
            [sys.executable, "-m", "venv", "--clear", str(root)],
            [str(root / "bin/python"), *_INSTALL, *self.requirements],
        ]
        for command in commands:
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"{self.name}: pip did not finish within {_INSTALL_S} s") from None
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no output"])[-1]
                raise Unavailable(f"{self.name}: {last}")
        (root / "complete").touch()
        return root


def site_packages(environment: Path) -> Path:
    """Return the folder with the packages of an environment."""
    return environment / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
