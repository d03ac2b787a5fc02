"""Files of one entry, and the facts that they hold: sizes, times, hits, backends. See layout.py."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

MODEL, DATA, MANIFEST, USAGE, REASON = "model", "data", "about", "used", "why"
"""Names of the files on disk."""

_OPTIONAL = {"origin", "name"}
"""Fields of a manifest that may be missing."""
_MAX_NAME = 300
"""Characters of the name and version of a model: more than a file system allows."""
_MAX_COUNTED_HITS = 2**20
"""Further hits are not counted, because each takes a byte."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description that is saved beside the two files.

    `identity`, `backends`, `origin` and `name` are for operators; sizes in bytes. An entry that was saved here has no
    origin.
    """

    identity: str
    token: str
    backends: str
    model_bytes: int
    data_bytes: int
    origin: str = ""
    name: str = ""

    def pack(self) -> bytes:
        """Return the content of the file. Fields that earlier releases lack are left out where they are empty."""
        fields = {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value}
        return json.dumps(fields, indent=1).encode() + b"\n"

    @staticmethod
    def parse(raw: bytes) -> "Manifest":
        """Parse the content of the file.

        Raises:
            ValueError: the content is not a manifest.
        """
        try:
            fields = json.loads(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        kinds = Manifest.__annotations__
        if not isinstance(fields, dict) or fields.keys() | _OPTIONAL != kinds.keys():
            raise ValueError(f"expected the fields {', '.join(kinds)}")
        for name, value in fields.items():
            if type(value) is not kinds[name]:
                raise ValueError(f"{name} is a {type(value).__name__}; expected a {kinds[name].__name__}")
        manifest = Manifest(**fields)
        manifest.identity.encode()  # raises for half a surrogate pair
        manifest.origin.encode()
        if not manifest.name.isprintable() or len(manifest.name) > _MAX_NAME:
            raise ValueError(f"the name of its model is not printable, or has more than {_MAX_NAME} characters")
        if manifest.model_bytes < 0 or manifest.data_bytes < 0:
            raise ValueError("a size is negative")
        return manifest


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """An entry, for lists.

    Attributes:
        identity: the identity of its owner, or "" if the manifest is damaged.
        owner: the digest of the identity.
        token: 32 bytes.
        size: bytes of both files.
        saved_at, last_used_at: seconds since 1970 (UTC).
        hits: how often it was opened.
        backends: the argument of `PendingEntry.commit`.
        generation: a name that changes when the entry is replaced.
        origin: where the entry comes from; "" if it was saved here.
        name: name and version of a model of the repository, for example "detector/3"; or the name that a client gave
            its model, without a slash; or "".
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
    origin: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class EntryStat:
    """An entry, for eviction. `size`: bytes of both files; `last_used_ns`: time of the last use, since 1970."""

    link: str
    generation: str
    size: int
    last_used_ns: int


def stat_entry(link: str, generations: str) -> EntryStat:
    """Return the facts that eviction needs. Each write calls this for every entry, so it takes few system calls.

    Raises:
        FileNotFoundError: the entry or one of its files does not exist.
    """
    generation = os.path.basename(os.readlink(link))
    folder = f"{generations}/{generation}/"
    size = os.stat(folder + MODEL).st_size + os.stat(folder + DATA).st_size
    return EntryStat(link, generation, size, os.stat(folder + USAGE).st_mtime_ns)


def read_info(link: Path, generations: Path) -> EntryInfo:
    """Read everything that is known of an entry.

    Raises:
        FileNotFoundError: the entry or one of its files does not exist.
    """
    folder = generations / os.path.basename(os.readlink(link))
    usage, model, data = (os.stat(folder / name) for name in (USAGE, MODEL, DATA))
    identity = backends = origin = name = ""
    with contextlib.suppress(ValueError):  # an entry with a damaged manifest is listed, so that it can be cleared
        manifest = Manifest.parse((folder / MANIFEST).read_bytes())
        identity, backends, origin, name = manifest.identity, manifest.backends, manifest.origin, manifest.name
    return EntryInfo(
        identity,
        link.parent.name,
        bytes.fromhex(link.name),
        model.st_size + data.st_size,
        model.st_mtime,
        usage.st_mtime,
        usage.st_size,
        backends,
        folder.name,
        origin,
        name,
    )


def count_hit(folder: int) -> None:
    """Count a hit by appending one byte, which is atomic among processes. `folder`: its descriptor."""
    # the count is a statistic: a full or read-only disk must not prevent reading
    with contextlib.suppress(OSError):
        descriptor = os.open(USAGE, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            if os.fstat(descriptor).st_size < _MAX_COUNTED_HITS:
                os.write(descriptor, b".")
            else:
                os.utime(descriptor)
        finally:
            os.close(descriptor)
