"""Format of a pair of cache files: a sealed document with arrays, and a file with more arrays.

The model cache holds a prelude (`_PRELUDE`), the document (JSON), sealed arrays, and the seal. The seal is an
HMAC-SHA-256 with the device's key over all bytes before it and the token. The data cache holds arrays; its size and its
SHA-256 are in the prelude. (On a CPU with SHA instructions SHA-256 does 1.7 GB/s, BLAKE2b 0.9, MD5 0.7.)

Integers of 32 bits and more, and booleans, are axes, shapes, paddings and indexes. They control memory accesses, so
they are sealed. Scalars are sealed too: a FLOAT32 may be a resize factor. Only tensors of floating-point and quantized
numbers go to the data cache. If its digest is not checked, a modified data cache causes only wrong results.
"""

import hashlib
import hmac
import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nnhal.alignment import align
from nnhal.types import AnyArray, Bytes
from nnhal_cache.seal import SEAL_BYTES, compute_seal
from nnhal_driver.model_cache.data_file import DataFile, check_size
from nnhal_driver.model_cache.files import CacheMissError, FileWriter, OpenFiles, file_status, read_file
from nnhal_driver.overlaps import flat_bytes, merge

MAGIC = b"NNHALMDL"
FORMAT = 3
"""Version of the format of both files. It changes whenever older readers would misread a file."""

_PRELUDE = struct.Struct("<8sIIQ16s32sQ32s")
"""Magic, format, bytes of the document, bytes of the file, id of the key, digest of the token; bytes and digest of the
data cache. The first six fields stay in place in every format, so that error messages can name the difference."""
_MAX_BYTES = 2**31
"""Largest accepted model cache. Sealed arrays are small; the limit bounds what a client can make the driver read."""
_UNSEALED = frozenset(np.dtype(name) for name in ("f2", "f4", "i1", "u1", "i2", "u2"))

Document = Mapping[str, Any]
Row = list[Any]
"""Part of the document: values in a fixed order."""


class ContainerWriter:
    """Writer of both files. Arrays that overlap in memory, or have equal bytes, are stored once."""

    def __init__(self) -> None:
        self._arrays: list[tuple[bool, Bytes, str, tuple[int, ...]]] = []

    def add_array(self, value: AnyArray) -> int:
        """Add an array and return its number."""
        return self._add(value, value.ndim == 0 or value.dtype not in _UNSEALED)

    def add_blob(self, value: bytes) -> int:
        """Add sealed bytes and return their number."""
        return self._add(np.frombuffer(value, np.uint8), True)

    def _add(self, value: AnyArray, sealed: bool) -> int:
        self._arrays.append((sealed, flat_bytes(value), value.dtype.str, value.shape))
        return len(self._arrays) - 1

    def _place(self) -> "tuple[list[Row], _ArrayFile, _ArrayFile]":
        """Return the locations of all arrays, and the arrays of both files."""
        locations: list[Row] = [[] for _ in self._arrays]
        files = _ArrayFile(), _ArrayFile()
        for is_sealed, file in enumerate(files):
            numbers = [i for i, (sealed, *_) in enumerate(self._arrays) if sealed == is_sealed]
            regions, places = merge([self._arrays[i][1] for i in numbers])
            offsets = list(map(file.add, regions))
            for i, (region, inner) in zip(numbers, places, strict=True):
                locations[i] = [is_sealed, offsets[region] + inner, *self._arrays[i][2:]]
        return locations, *files

    def write(self, files: OpenFiles, key: bytes, document: Document) -> None:
        """Write both files.

        Raises:
            TooLargeError: raised by `CacheFiles.check_size`. The files are unchanged.
            OSError: a file cannot be written. The files are then invalid.
        """
        locations, data, sealed = self._place()
        encoded = json.dumps({**document, "arrays": locations}, separators=(",", ":")).encode()
        start = align(_PRELUDE.size + len(encoded))
        size = start + sealed.size + SEAL_BYTES
        files.check_size(size + data.size)
        model = FileWriter(files.model)
        digest = data.write(FileWriter(files.data))
        token = hashlib.sha256(files.token).digest()
        prelude = _PRELUDE.pack(MAGIC, FORMAT, len(encoded), size, key_id(key), token, data.size, digest)
        head = (prelude + encoded).ljust(start, b"\0")
        body = head + b"".join(sealed.chunks())
        model.write(body)
        model.write(compute_seal(key, [body], files.token))


class _ArrayFile:
    """Arrays at aligned offsets, one after the other."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, Bytes]] = []
        self._known: dict[tuple[int, int], list[tuple[int, Bytes]]] = defaultdict(list)
        self.size = 0

    def add(self, raw: Bytes) -> int:
        """Return the offset of bytes; adds them unless equal bytes are there."""
        candidates = self._known[raw.size, zlib.crc32(raw.data)]
        for offset, known in candidates:
            if np.array_equal(known, raw):
                return offset
        offset = align(self.size)
        candidates.append((offset, raw))
        self._arrays.append((offset, raw))
        self.size = offset + raw.size
        return offset

    def chunks(self) -> list[memoryview | bytes]:
        """Return the arrays, with the padding between them."""
        chunks: list[memoryview | bytes] = []
        end = 0
        for offset, raw in self._arrays:
            chunks += [bytes(offset - end), raw.data]
            end = offset + raw.size
        return chunks

    def write(self, file: FileWriter) -> bytes:
        """Write the arrays and return the digest of the file."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
            file.write(chunk)
        return digest.digest()


class Container:
    """Contents of both files in private memory. The model cache is read at once, the data cache by `read_data`.

    Attributes:
        size: bytes of the model cache.
        seal: the seal of the model cache, which differs between any two of them.

    Raises:
        CacheMissError: the model cache was not saved with this key and token, was changed, or cannot be read.
    """

    def __init__(self, files: OpenFiles, key: bytes) -> None:
        model = _read_model(files, key)
        self.size = model.size
        self.seal = model[-SEAL_BYTES:].tobytes()
        _, _, document_size, _, _, _, self._data_size, self._data_digest = _PRELUDE.unpack_from(model.data)
        self._encoded = model[_PRELUDE.size : _PRELUDE.size + document_size]
        self._files = files
        self._sealed = model[align(_PRELUDE.size + document_size) : -SEAL_BYTES]
        self._data: DataFile | None = None

    @cached_property
    def document(self) -> Document:
        """The document that was saved."""
        document: Document = json.loads(self._encoded.tobytes())
        return document

    def check_data_size(self) -> None:
        """Check the size of the data cache, without reading it.

        Raises:
            CacheMissError: the data cache has another size.
        """
        check_size(self._files.data, self._data_size)

    def read_data(self, *, check: bool) -> None:
        """Start to read the data cache. Call it before `array`.

        Args:
            check: whether to check the digest. It is computed in the background, so if `finish` fails, nothing that was
                derived from the arrays may be used.

        Raises:
            CacheMissError: the data cache has another size.
        """
        self._data = DataFile(self._files.data, self._data_size, self._data_digest if check else None)

    def array(self, number: int) -> AnyArray:
        """Return an array by the writer's number, read-only.

        Raises:
            CacheMissError: the data cache is too short, or cannot be read.
            MemoryError: there is not enough memory for the data cache.
        """
        sealed, offset, dtype, shape = self.document["arrays"][number]
        assert self._data is not None, "the data cache was not read"
        memory = self._sealed if sealed else self._data.memory
        return np.ndarray(shape, dtype, memory, offset)

    def blob(self, number: int) -> bytes:
        """Return bytes by their number."""
        return self.array(number).tobytes()

    def finish(self) -> None:
        """Wait until the data cache is checked. Always call it after `read_data`, also after errors.

        Raises:
            CacheMissError: the data cache differs from what was saved, or cannot be read.
            MemoryError: there is not enough memory for the data cache.
        """
        assert self._data is not None, "the data cache was not read"
        self._data.finish()


def _read_model(files: OpenFiles, key: bytes) -> Bytes:
    """Return the model cache after checking its seal. Until then its bytes only choose the error message."""
    size = file_status(files.model).st_size
    if size == 0:
        raise CacheMissError("the model cache is empty: nothing was saved")
    if not _PRELUDE.size + SEAL_BYTES <= size <= _MAX_BYTES:
        raise CacheMissError(f"the model cache has an invalid size of {size} bytes", damaged=True)
    model = read_file(files.model, size, "model")
    body, seal = model[:-SEAL_BYTES], model[-SEAL_BYTES:]
    if not hmac.compare_digest(compute_seal(key, [body.data], files.token), seal.tobytes()):
        raise _broken_seal(model, key, files.token)
    if (format_ := _PRELUDE.unpack_from(model.data)[1]) != FORMAT:
        raise CacheMissError(f"the model cache has format {format_}, this driver reads {FORMAT}")
    return model


def _broken_seal(model: Bytes, key: bytes, token: bytes) -> CacheMissError:
    """Return an error that names the likely reason for a wrong seal, according to the unchecked prelude."""
    magic, format_, _, size, name, digest, *_ = _PRELUDE.unpack_from(model.data)
    if magic != MAGIC:
        return CacheMissError("the model cache is not a file of this driver", damaged=True)
    if format_ > FORMAT:
        return CacheMissError(f"the model cache has format {format_}, this driver reads {FORMAT}")
    if size != model.size:
        state = "truncated" if model.size < size else "extended"
        return CacheMissError(f"the model cache is {state}: it has {model.size} bytes, not {size}", damaged=True)
    if name != key_id(key):
        return CacheMissError("it was saved with another key")
    if digest != hashlib.sha256(token).digest():
        return CacheMissError("it was saved with another token")
    return CacheMissError("the model cache was changed: its seal is broken", damaged=True)


def key_id(key: bytes) -> bytes:
    """Return an id that tells keys apart and reveals nothing about them."""
    return hmac.digest(key, b"name of the key", "sha256")[:16]
