"""Format of an entry in the share: one object with a sealed head, the model cache and the data cache.

A share is not trusted. The seal of the head covers the name of the object and the seal of the model cache. The name
depends on the client's identity, the token, the CPU and all versions; the model cache has the digest of the data cache.
So an object that was changed, or moved to another name, is refused. Without the key, names and heads tell
nothing about identities, tokens and models.
"""

import hashlib
import hmac
import json
import os
import re
import socket
import struct
import time
from dataclasses import dataclass

from nnhal_cache.seal import SEAL_BYTES
from nnhal_driver.model_cache.codec import encode
from nnhal_driver.model_cache.environment import BuildEnvironment

FOLDER = "nnhal-1"
"""Folder of all objects: the version of their names."""
FORMAT = 1
"""Version of the format of objects."""
MAX_OBJECT_BYTES = 2**30
"""Largest object. Larger entries stay in the local cache."""
NAME = re.compile(r"nnhal-1/[\w.+,=-]{1,80}/cpu-[0-9a-f]{16}/[0-9a-f]{16}/[0-9a-f]{2}/[0-9a-f]{62}", re.ASCII)
"""Valid names."""

_MAGIC = b"NNHALSHR"
_PRELUDE = struct.Struct("<8sII16s32s32sQQ32s")
"""Magic, format, bytes of the text, id of the key, digest of the name, id of the model, bytes of the model cache and of
the data cache, seal."""
PRELUDE_BYTES = _PRELUDE.size
_MAX_TEXT_BYTES = 4096


class RefusedEntryError(Exception):
    """An object is not a valid entry. The message says why."""


@dataclass(frozen=True, slots=True)
class SharedEntry:
    """A valid entry in a file.

    Attributes:
        saved_at: when it did, in seconds since 1970.
        model: offset and size of the model cache in the file.
        data: offset and size of the data cache.
    """

    host: str
    saved_at: float
    model: tuple[int, int]
    data: tuple[int, int]


class EntrySealer:
    """Names and seals of entries.

    Args:
        key: the key that seals the model caches, too.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hmac.digest(key, b"nnhal cache share", "sha256")
        self._key_id = hmac.digest(self._key, b"name of the key", "sha256")[:16]

    def name(self, environment: BuildEnvironment, identity: str, token: bytes) -> str:
        """Return the name of the entry of an owner with a token, whose device compiles models in an environment."""
        entry = hmac.new(self._key, b"entry\0" + token, "sha256")
        entry.update(identity.encode())
        built = hashlib.sha256(json.dumps(encode(BuildEnvironment, environment)).encode()).hexdigest()[:16]
        driver = re.sub(r"[^\w.+=-]", "-", environment.driver, flags=re.ASCII)[:80]
        digits = entry.hexdigest()
        return f"{FOLDER}/{driver}/cpu-{environment.cpu}/{built}/{digits[:2]}/{digits[2:]}"

    def model_id(self, digest: bytes, priority: int) -> bytes:
        """Return what tells entries of different models with one token apart."""
        return hmac.digest(self._key, b"model\0%d\0%s" % (priority, digest), "sha256")

    def pack(self, name: str, model_id: bytes, model_fd: int, data_fd: int) -> bytes:
        """Return the head of an entry, given the descriptors of its model cache and data cache.

        Raises:
            OSError: a file cannot be read.
        """
        sizes = os.fstat(model_fd).st_size, os.fstat(data_fd).st_size
        text = json.dumps({"host": socket.gethostname()[:255], "at": int(time.time())}).encode()
        values = _MAGIC, FORMAT, len(text), self._key_id, _digest(name), model_id, *sizes
        seal = self._seal(name, _PRELUDE.pack(*values, bytes(32)), text, _read_seal(model_fd, 0, sizes[0]))
        return _PRELUDE.pack(*values, seal) + text

    def open(self, name: str, file: int) -> SharedEntry:
        """Return the entry in a file, after checking everything but the contents of model cache and data cache.

        Raises:
            RefusedEntryError: the file has no entry of this name.
            OSError: the file cannot be read.
        """
        size, prelude = os.fstat(file).st_size, os.pread(file, PRELUDE_BYTES, 0)
        if len(prelude) < PRELUDE_BYTES:
            raise RefusedEntryError(f"it is truncated: it has {size} bytes")
        magic, format_, text_bytes, key_id, name_digest, _, model, data, seal = values = _PRELUDE.unpack(prelude)
        if magic != _MAGIC:
            raise RefusedEntryError("it is not an entry of nnhal")
        if format_ != FORMAT:
            raise RefusedEntryError(f"it has format {format_}; this release reads {FORMAT}")
        if key_id != self._key_id:
            raise RefusedEntryError("it was saved with another key")
        if name_digest != _digest(name):
            raise RefusedEntryError("it was saved for another token, identity, version or CPU")
        expected = PRELUDE_BYTES + text_bytes + model + data
        if size != expected or text_bytes > _MAX_TEXT_BYTES or model < SEAL_BYTES:
            state = "truncated" if size < expected else "extended"
            raise RefusedEntryError(f"it is {state}: it has {size} bytes, not {expected}")
        text, start = os.pread(file, text_bytes, PRELUDE_BYTES), PRELUDE_BYTES + text_bytes
        unsealed = _PRELUDE.pack(*values[:-1], bytes(32))
        if not hmac.compare_digest(self._seal(name, unsealed, text, _read_seal(file, start, model)), seal):
            raise RefusedEntryError("it was changed: its seal is broken")
        facts = json.loads(text)
        return SharedEntry(facts["host"], facts["at"], (start, model), (start + model, data))

    def _seal(self, name: str, prelude: bytes, text: bytes, model_seal: bytes) -> bytes:
        return hmac.digest(self._key, b"\0".join((b"entry", name.encode(), prelude, text, model_seal)), "sha256")


def declared_bytes(beginning: bytes) -> int | None:
    """Return the size of an object according to its first bytes, which nothing has checked; None if they have none."""
    if len(beginning) < PRELUDE_BYTES or not beginning.startswith(_MAGIC):
        return None
    _, _, text, _, _, _, model, data, _ = _PRELUDE.unpack_from(beginning)
    return PRELUDE_BYTES + int(text) + int(model) + int(data)


def is_same_model(head: bytes, other: bytes) -> bool:
    """Return whether two objects say that they are of the same model. Nothing has checked their first bytes."""
    if min(len(head), len(other)) < PRELUDE_BYTES:
        return False
    first, second = (_PRELUDE.unpack_from(each) for each in (head, other))
    return (first[0], first[1], first[5]) == (second[0], second[1], second[5])


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _read_seal(file: int, start: int, size: int) -> bytes:
    """Return the seal at the end of a model cache, which begins at an offset of a file."""
    return os.pread(file, SEAL_BYTES, start + max(0, size - SEAL_BYTES))
