"""Members of an archive: each is an npz file in a tar file, with a JSON object beside its arrays.

A tar file can grow by whole members, and its reader needs no directory at the end. So the end of a process loses at
most the member that it was writing. The CRC of zip tells a member with flipped bits.
"""

import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from nnhal.types import AnyArray

VERSION = 1
"""Version of the format. A reader refuses archives of newer versions."""
HEADER = "archive.npz"
"""Name of the first member."""
_DOCUMENT = "index.json"
_ARRAY = ".npy"
_NAMES = "arrays"
"""Key of the names of the arrays."""


class RecordingError(Exception):
    """An archive that cannot be read or written. The text says which one, and why."""


def record_name(number: int) -> str:
    """Return the name of the member of a record. Records of a file are counted from 1."""
    return f"records/{number:08}.npz"


def model_name(digest: str) -> str:
    """Return the name of the member of a model, by its digest in hexadecimal."""
    return f"models/{digest}.npz"


def pack_member(name: str, content: bytes) -> bytes:
    """Return the bytes of a member of a tar file."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(content), 0o600
    padding = bytes(-len(content) % tarfile.BLOCKSIZE)
    return header.tobuf(tarfile.USTAR_FORMAT) + content + padding


def pack_content(document: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> bytes:
    """Return an npz file with a JSON object and arrays."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(_DOCUMENT, json.dumps({**document, _NAMES: list(arrays)}))
        for name, array in arrays.items():
            encoded = io.BytesIO()
            np.lib.format.write_array(encoded, np.ascontiguousarray(array), allow_pickle=False)
            file.writestr(name + _ARRAY, encoded.getbuffer())
    return content.getvalue()


def unpack_content(content: bytes) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return the JSON object and the arrays of an npz file.

    Raises:
        RecordingError: it is damaged.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            document = json.loads(file.read(_DOCUMENT))
            for name in document.pop(_NAMES):
                arrays[name] = np.lib.format.read_array(io.BytesIO(file.read(name + _ARRAY)), allow_pickle=False)
    except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise RecordingError(f"damaged: {error}") from None
    return document, arrays
