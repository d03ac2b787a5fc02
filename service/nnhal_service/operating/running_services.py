"""Files in the state directory that name the running services of a user, for commands that reach their supervisors.

A service locks its file while it runs. So a file whose service was killed is recognized, and removed.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_FOLDER = "services"


@dataclass(frozen=True, slots=True)
class RunningService:
    """A running service.

    Attributes:
        pid: id of the process of its supervisor.
        admin: address of its administration; "" if it has none.
    """

    pid: int
    addresses: tuple[str, ...]
    admin: str = ""


class ServiceFile:
    """File of a service. Close it when the service ends.

    Args:
        admin: address of its administration; "" if it has none.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, state_dir: Path, addresses: Sequence[str], admin: str = "") -> None:
        folder = state_dir / _FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / f"{os.getpid()}.json"
        self._file = self._path.open("w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        json.dump({"pid": os.getpid(), "addresses": list(addresses), "admin": admin}, self._file)
        self._file.flush()

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def running_services(state_dir: Path) -> list[RunningService]:
    """Return the services that run with a state directory. Files of others are removed."""
    services = []
    for path in sorted((state_dir / _FOLDER).glob("*.json")):
        with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
            if _is_locked(file):
                with suppress(ValueError, KeyError, TypeError):  # it is being written
                    entry = json.load(file)
                    services.append(
                        RunningService(int(entry["pid"]), tuple(entry["addresses"]), entry.get("admin", ""))
                    )
            else:
                path.unlink(missing_ok=True)
    return services


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
