"""Members of archives: what standard programs read, and damage."""

import io
import tarfile
from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

from nnhal.recording.members import RecordingError, pack_content, pack_member, unpack_content
from nnhal.types import AnyArray

ARRAYS: Mapping[str, AnyArray] = {
    "scalar": np.array(1.5, np.float32),
    "empty": np.empty((0, 3), np.int32),
    "half": np.arange(6, dtype=np.float16).reshape(2, 3),
    "bools": np.array([True, False]),
}


def test_content_is_what_was_packed() -> None:
    document, arrays = unpack_content(pack_content({"a": [1, None]}, ARRAYS))
    assert document == {"a": [1, None]} and arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_standard_readers_read_a_member() -> None:
    content = pack_content({}, ARRAYS)
    with tarfile.open(fileobj=io.BytesIO(pack_member("records/00000001.npz", content))) as file:
        (member,) = file
        extracted = file.extractfile(member)
        assert extracted is not None and member.name == "records/00000001.npz"
        with np.load(io.BytesIO(extracted.read())) as arrays:
            np.testing.assert_array_equal(arrays["half"], ARRAYS["half"])


def test_flipped_bits_never_change_a_value() -> None:
    """Bits that no reader looks at, such as times, may flip."""
    content, random = pack_content({"a": 1}, ARRAYS), Random(1)
    found = 0
    for _ in range(400):
        damaged = bytearray(content)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        try:
            document, arrays = unpack_content(bytes(damaged))
        except RecordingError as error:
            found += "damaged" in str(error)
            continue
        assert document == {"a": 1}
        assert arrays.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], array)
    assert found > 200


@pytest.mark.parametrize("content", [b"", b"PK", bytes(1000)])
def test_other_content_is_damaged(content: bytes) -> None:
    with pytest.raises(RecordingError, match="damaged"):
        unpack_content(content)
