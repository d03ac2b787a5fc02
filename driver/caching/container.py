"""A pair of cache files: a sealed document with arrays, and a file of further arrays.

Model cache: prelude (`_PRELUDE`), document (JSON), sealed arrays, and last the seal: HMAC-SHA-256 with the device's key
over all bytes before it and the token. Data cache: arrays; the prelude holds its size and its SHA-256. (Measured on a
CPU with SHA instructions: SHA-256 1.7 GB/s, BLAKE2b 0.9, MD5 0.7.)

Integers of 32 bits and more, and booleans, are axes, shapes, paddings and indexes to those who read them: they steer
accesses to memory, and are sealed. So are scalars: a FLOAT32 may say by how much to resize. Only tensors of
floating point and quantised numbers go to the data cache, so that a changed one that nobody checks gives wrong answers
and nothing worse.
"""

import hashlib
import hmac
import json
import mmap
import struct
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from driver.caching.data_file import DataFile
from driver.caching.files import FileWriter, OpenFiles, read, size_of
from driver.caching.miss import CacheMissError
from nnhal.types import AnyArray, Bytes

MAGIC = b"NNHALMDL"
FORMAT = 2
"""Version of the form of both files. It changes with everything that older readers would misunderstand."""
SEAL_BYTES = 32

_PRELUDE = struct.Struct("<8sIIQ16s32sQ32s")
"""Magic, format, bytes of the document, bytes of the file, name of the key, digest of the token; bytes of the data
cache, digest of it. What reads older files must find the first six where they are."""
_ALIGNMENT = 64
_LARGE = 64 * 1024
"""Bytes from which an array keeps its place within a page, so that pages can be shared with a copy of it."""
_LARGEST = 2**31
"""Bytes of a model cache. What is sealed is small; nobody shall make the driver read more."""
_UNSEALED = frozenset(np.dtype(name) for name in ("f2", "f4", "i1", "u1", "i2", "u2"))

Document = Mapping[str, Any]
Row = list[Any]
"""A part of the document: values in a fixed order."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an array lies: in the sealed part, or in the data cache."""

    sealed: bool
    offset: int
    dtype: str
    shape: tuple[int, ...]


class ContainerWriter:
    """Collects arrays and writes both files. Arrays with equal bytes are kept once."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._known: dict[tuple[bool, int, int], list[tuple[int, Bytes]]] = defaultdict(list)
        self._sealed, self._data = _Layout(), _Layout()

    def array(self, value: AnyArray) -> int:
        """Adds an array; gives its number."""
        return self._add(value, value.ndim == 0 or value.dtype not in _UNSEALED)

    def blob(self, value: bytes) -> int:
        """Adds bytes, sealed; gives their number."""
        return self._add(np.frombuffer(value, np.uint8), True)

    def _add(self, value: AnyArray, sealed: bool) -> int:
        raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._places.append(_Place(sealed, self._offset(raw, sealed), value.dtype.str, value.shape))
        return len(self._places) - 1

    def _offset(self, raw: Bytes, sealed: bool) -> int:
        """Where bytes lie, which may be there already."""
        alike = self._known[sealed, raw.size, zlib.crc32(raw.data)]
        for offset, known in alike:
            if np.array_equal(known, raw):
                return offset
        offset = (self._sealed if sealed else self._data).add(raw)
        alike.append((offset, raw))
        return offset

    def write(self, files: OpenFiles, key: bytes, document: Document) -> None:
        """Writes both files.

        Raises:
            OSError: one cannot be written; what it holds then is no entry.
        """
        model = FileWriter(files.model)
        digest = self._data.write(FileWriter(files.data))
        table = [[int(place.sealed), place.offset, place.dtype, place.shape] for place in self._places]
        whole = {**document, "arrays": table}
        described = json.dumps(whole, separators=(",", ":")).encode()
        start = _align(_PRELUDE.size + len(described))
        size = start + self._sealed.size + SEAL_BYTES
        token = hashlib.sha256(files.token).digest()
        prelude = _PRELUDE.pack(MAGIC, FORMAT, len(described), size, key_name(key), token, self._data.size, digest)
        head = (prelude + described).ljust(start, b"\0")
        body = head + b"".join(self._sealed.chunks())
        model.write(body)
        model.write(_seal(key, body, files.token))


class _Layout:
    """Arrays one after the other."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, Bytes]] = []
        self.size = 0

    def add(self, raw: Bytes) -> int:
        offset = _align(self.size)
        if raw.size >= _LARGE:
            offset = self.size + (raw.ctypes.data - self.size) % mmap.PAGESIZE
        self._arrays.append((offset, raw))
        self.size = offset + raw.size
        return offset

    def chunks(self) -> list[memoryview | bytes]:
        """The arrays, and what lies between them."""
        found: list[memoryview | bytes] = []
        end = 0
        for offset, raw in self._arrays:
            found += [bytes(offset - end), raw.data]
            end = offset + raw.size
        return found

    def write(self, file: FileWriter) -> bytes:
        """Writes them; gives the digest of the file."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
            file.write(chunk)
        return digest.digest()


class Container:
    """Both files, read into memory of our own: the model cache at once, the data cache by `read_data`.

    Args:
        files: are read once.
        key: that the model cache was sealed with.

    Raises:
        CacheMissError: the model cache is not what was saved with this key and token.
        OSError: it cannot be read.
    """

    def __init__(self, files: OpenFiles, key: bytes) -> None:
        model = _read_model(files, key)
        _, _, described, _, _, _, self._data_size, self._data_digest = _PRELUDE.unpack_from(model.data)
        self._described = model[_PRELUDE.size : _PRELUDE.size + described]
        self._files = files
        self._sealed = model[_align(_PRELUDE.size + described) : -SEAL_BYTES]
        self._data: DataFile | None = None

    @cached_property
    def document(self) -> Document:
        """As it was saved."""
        document: Document = json.loads(self._described.tobytes())
        return document

    @cached_property
    def _places(self) -> Row:
        places: Row = self.document["arrays"]
        return places

    def read_data(self, *, check: bool) -> None:
        """Begins to read the data cache, before the first array is asked for.

        Args:
            check: whether its digest must be right. It is worked out while the caller goes on: nothing may be made of
                the arrays that outlives a failing `finish`.

        Raises:
            CacheMissError: it has another size.
            OSError: it cannot be read.
        """
        self._data = DataFile(self._files.data, self._data_size, self._data_digest if check else None)

    def array(self, number: int) -> AnyArray:
        """An array, by the number that the writer gave. Not writable.

        Raises:
            CacheMissError, OSError, MemoryError: the data cache cannot be read.
        """
        sealed, offset, dtype, shape = self._places[number]
        assert self._data is not None, "the data cache was not read"
        memory = self._sealed if sealed else self._data.memory
        return np.ndarray(shape, dtype, memory, offset)

    def blob(self, number: int) -> bytes:
        """Bytes, by their number."""
        return self.array(number).tobytes()

    def finish(self) -> None:
        """Waits until the data cache has been checked. To be called after `read_data`, whatever happens in between.

        Raises:
            CacheMissError: it is not what was saved.
            OSError, MemoryError: it cannot be read.
        """
        assert self._data is not None, "the data cache was not read"
        self._data.finish()

    def close(self) -> None:
        """Waits for what reads the data cache, and judges nothing: in place of `finish`, for what is not used."""
        if self._data is not None:
            self._data.close()


def _read_model(files: OpenFiles, key: bytes) -> Bytes:
    """The model cache, its seal found right. What is looked at before that only chooses the words.

    Raises:
        CacheMissError: saying what is wrong.
        OSError: it cannot be read.
    """
    size = size_of(files.model)
    if size == 0:
        raise CacheMissError("the model cache is empty: nothing was saved")
    if not _PRELUDE.size + SEAL_BYTES <= size <= _LARGEST:
        raise CacheMissError(f"the model cache has {size} bytes, which no model cache has", damaged=True)
    model = read(files.model, size, "model")
    body, seal = model[:-SEAL_BYTES], model[-SEAL_BYTES:]
    if not hmac.compare_digest(_seal(key, body.data, files.token), seal.tobytes()):
        raise _unsealed(model, key, files.token)
    if (format_ := _PRELUDE.unpack_from(model.data)[1]) != FORMAT:
        raise CacheMissError(f"the model cache has format {format_}, this driver reads {FORMAT}")
    return model


def _unsealed(model: Bytes, key: bytes, token: bytes) -> CacheMissError:
    """Why a seal may be wrong, as far as the prelude can be believed."""
    magic, format_, _, size, name, digest, *_ = _PRELUDE.unpack_from(model.data)
    if magic != MAGIC:
        return CacheMissError("the model cache is no file of this driver", damaged=True)
    if format_ > FORMAT:
        return CacheMissError(f"the model cache has format {format_}, this driver reads {FORMAT}")
    if size != model.size:
        what = "truncated" if model.size < size else "extended"
        return CacheMissError(f"the model cache is {what}: it has {model.size} bytes, not {size}", damaged=True)
    if name != key_name(key):
        return CacheMissError("it was saved with another key")
    if digest != hashlib.sha256(token).digest():
        return CacheMissError("it was saved with another token")
    return CacheMissError("the model cache was changed: its seal is broken", damaged=True)


def key_name(key: bytes) -> bytes:
    """What tells keys apart, and tells nothing of them."""
    return hmac.digest(key, b"name of the key", "sha256")[:16]


def _seal(key: bytes, body: memoryview | bytes, token: bytes) -> bytes:
    made = hmac.new(key, body, "sha256")
    made.update(token)
    return made.digest()


def _align(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
