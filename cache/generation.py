"""The files of one saved entry, and what they tell: sizes, times, hits, backends. See layout.py."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

MODEL, DATA, ABOUT, USED, WHY = "model", "data", "about", "used", "why"

_HITS_COUNTED = 2**20
"""More hits than this are not counted: each costs a byte."""


@dataclass(frozen=True, slots=True)
class About:
    """What is saved beside the two files. `identity` and `backends` are for people; sizes in bytes."""

    identity: str
    token: str
    backends: str
    model_bytes: int
    data_bytes: int

    def pack(self) -> bytes:
        """As a file holds it."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @staticmethod
    def parse(raw: bytes) -> "About":
        """The reverse of `pack`.

        Raises:
            ValueError: it is none; says what is wrong.
        """
        try:
            found = json.loads(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        kinds = {name: str(kind) for name, kind in About.__annotations__.items()}
        if not isinstance(found, dict) or found.keys() != kinds.keys():
            raise ValueError(f"it must hold {', '.join(kinds)}")
        for name, value in found.items():
            if type(value) is not About.__annotations__[name]:
                raise ValueError(f"{name} is no {About.__annotations__[name].__name__}")
        about = About(**found)
        about.identity.encode()  # half a surrogate pair has no bytes
        if about.model_bytes < 0 or about.data_bytes < 0:
            raise ValueError("a size is negative")
        return about


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """An entry as lists show it.

    Attributes:
        identity: whose it is; "" where the file that says so is damaged.
        owner: the digest of the identity.
        token: 32 bytes.
        size: bytes of both files.
        saved_at, last_used_at: seconds since 1970, UTC.
        hits: how often it was opened.
        backends: as `commit` was told.
        generation: changes with each replacement.
    """

    identity: str
    owner: str
    token: bytes
    size: int
    saved_at: float
    last_used_at: float
    hits: int
    backends: str
    generation: str


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry as those see it who make room. `size`: bytes of both files; `used_at`: the last use, in nanoseconds."""

    link: str
    generation: str
    size: int
    used_at: int


def placed(link: str, generations: str) -> Placed:
    """What making room needs to know of an entry; cheap, for it is asked of all of them at each write.

    Raises:
        FileNotFoundError: it is gone, or has lost a file.
    """
    generation = os.path.basename(os.readlink(link))
    folder = f"{generations}/{generation}/"
    size = os.stat(folder + MODEL).st_size + os.stat(folder + DATA).st_size
    return Placed(link, generation, size, os.stat(folder + USED).st_mtime_ns)


def info_of(link: Path, generations: Path) -> EntryInfo:
    """What there is to know of an entry.

    Raises:
        FileNotFoundError: it is gone, or has lost a file.
    """
    folder = generations / os.path.basename(os.readlink(link))
    used, model, data = (os.stat(folder / name) for name in (USED, MODEL, DATA))
    identity = backends = ""
    with contextlib.suppress(ValueError):  # a damaged one is listed all the same, so that it can be cleared
        about = About.parse((folder / ABOUT).read_bytes())
        identity, backends = about.identity, about.backends
    return EntryInfo(
        identity,
        link.parent.name,
        bytes.fromhex(link.name),
        model.st_size + data.st_size,
        model.st_mtime,
        used.st_mtime,
        used.st_size,
        backends,
        folder.name,
    )


def count_hit(folder: int) -> None:
    """Notes that an entry was opened: one byte more, in one call, whoever else does the same."""
    # statistics: a full or read-only disk must not keep anybody from reading
    with contextlib.suppress(OSError):
        descriptor = os.open(USED, os.O_WRONLY | os.O_APPEND, dir_fd=folder)
        try:
            if os.fstat(descriptor).st_size < _HITS_COUNTED:
                os.write(descriptor, b".")
            else:
                os.utime(descriptor)
        finally:
            os.close(descriptor)
