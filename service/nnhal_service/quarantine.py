"""Quarantine file: the models that have crashed a worker, in the state directory. It survives restarts.

The first crash of a model excludes the backend whose code ran. After the second one, the model is refused. If several
models were in progress when a worker crashed, none of them is sure to be the cause: it then takes three crashes.
"""

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nnhal_driver.quarantine import HARMLESS, Verdict
from nnhal_service.replaced_files import file_version, replace_file

EXPIRY_S = 7 * 24 * 3600.0
"""Seconds after which a crash is forgotten."""
_FILE = "quarantine.json"
_LOCK = "quarantine.lock"
_MAX_SURE = 2
"""Number of crashes that were surely caused by a model, at which it is refused."""
_MAX_ALL = 3
"""Number of crashes in which a model was one of several suspects, at which it is refused."""


@dataclass(frozen=True, slots=True)
class Crash:
    """One crash for which a model is suspect.

    Attributes:
        backend: id of the backend whose code ran; "" if unknown.
        at: seconds since 1970.
        sure: whether the model was the only suspect.
    """

    backend: str
    at: float
    how: str
    sure: bool


class QuarantineFile:
    """The file. Thread safe; several processes may use it at once."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._crashes: Mapping[str, tuple[Crash, ...]] = {}

    def crashes(self) -> Mapping[str, tuple[Crash, ...]]:
        """Return the crashes that are not forgotten, by the digest of the model in hexadecimal."""
        version = file_version(self._folder / _FILE)
        if version != self._seen:
            self._seen, self._crashes = version, self._read()
        oldest = self._clock() - EXPIRY_S
        recent = {
            digest: tuple(crash for crash in crashes if crash.at >= oldest) for digest, crashes in self._crashes.items()
        }
        return {digest: crashes for digest, crashes in recent.items() if crashes}

    def verdict(self, digest: bytes) -> Verdict:
        """Return the decision on a model."""
        if not digest or not (crashes := self.crashes().get(digest.hex())):
            return HARMLESS
        text = f"the service crashed {_times(len(crashes))} while it worked on this model, last: {crashes[-1].how}"
        if sum(crash.sure for crash in crashes) >= _MAX_SURE or len(crashes) >= _MAX_ALL:
            return Verdict(refusal=f"the model is in quarantine: {text}. `nnhal quarantine clear` ends it")
        return Verdict(tuple(dict.fromkeys(crash.backend for crash in crashes if crash.backend)), reason=text)

    def count(self, backend: str) -> int:
        """Return the number of models that crashed while a backend worked on them."""
        return sum(any(crash.backend == backend for crash in crashes) for crashes in self.crashes().values())

    def record(self, digest: bytes, crash: Crash) -> None:
        """Add a crash.

        Raises:
            OSError: the file cannot be written.
        """
        with self._locked():
            self._seen = None
            crashes = {**self.crashes()}
            crashes[digest.hex()] = (*crashes.get(digest.hex(), ()), crash)
            self._write(crashes)

    def clear(self, prefixes: Sequence[str] = ()) -> int:
        """Forget the models whose digests begin with hexadecimal digits, or all models, and return their number.

        Raises:
            OSError: the file cannot be written.
            ValueError: no digest starts with one of the prefixes. Then none is forgotten.
        """
        known = self.crashes()
        for prefix in prefixes:
            if not any(digest.startswith(prefix.lower()) for digest in known):
                raise ValueError(f"no digest starts with {prefix!r}")
        if not known:
            return 0
        chosen = tuple(prefix.lower() for prefix in prefixes) or ("",)
        with self._locked():
            self._seen = None
            crashes = self.crashes()
            kept = {digest: each for digest, each in crashes.items() if not digest.startswith(chosen)}
            if len(kept) < len(crashes):
                self._write(kept)
            return len(crashes) - len(kept)

    def _read(self) -> Mapping[str, tuple[Crash, ...]]:
        """Return the contents; nothing if there is no file, or if it is damaged."""
        try:
            entries = json.loads((self._folder / _FILE).read_text("utf-8"))
            return {digest: tuple(Crash(**crash) for crash in crashes) for digest, crashes in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _write(self, crashes: Mapping[str, tuple[Crash, ...]]) -> None:
        text = json.dumps({digest: [asdict(crash) for crash in each] for digest, each in crashes.items()}, indent=1)
        replace_file(self._folder / _FILE, text.encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
