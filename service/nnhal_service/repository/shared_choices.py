"""Choices of operators and clients that all workers of a service share: names that are unloaded, and loads.

They are in a file, which each worker reads when it has changed. A service that starts again has none.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nnhal_service.replaced_files import file_version, replace_file


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice for one name.

    Attributes:
        loads: number of times that it was to be loaded.
    """

    is_unloaded: bool = False
    loads: int = 0


NO_CHOICE = Choice()


class SharedChoices:
    """Choices by name. Thread safe. Without a path, they are those of one process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._version: tuple[int, ...] | None = None
        self._choices: dict[str, Choice] = {}
        self._lock = threading.Lock()

    def read(self) -> Mapping[str, Choice]:
        """Return all choices."""
        with self._lock:
            self._read()
            return dict(self._choices)

    def set(self, name: str, *, is_unloaded: bool) -> None:
        """Choose for a name. Of two workers that do so at the same instant, one may win.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            self._read()
            loads = self._choices.get(name, NO_CHOICE).loads + (not is_unloaded)
            self._choices[name] = Choice(is_unloaded, loads)
            if self._path is not None:
                values = {name: [choice.is_unloaded, choice.loads] for name, choice in self._choices.items()}
                replace_file(self._path, json.dumps(values).encode())
                self._version = file_version(self._path)

    def _read(self) -> None:
        if self._path is None or (version := file_version(self._path)) in (None, self._version):
            return
        values = json.loads(self._path.read_text("utf-8"))
        self._choices = {name: Choice(*value) for name, value in values.items()}
        self._version = version
