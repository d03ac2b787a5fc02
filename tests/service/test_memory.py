"""Memory objects: what is sealed stays as it is."""

import hashlib
import threading
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from service.memory import MemoryObject

RIGHT, WRONG = bytes(range(64)), bytes(64)


def test_an_upload_cannot_slip_under_the_digest_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is found right, and before that is noted somebody else writes."""
    thing = MemoryObject(np.frombuffer(bytearray(RIGHT), np.uint8), hashlib.sha256(RIGHT).digest())
    refused: list[HalError] = []

    def write() -> None:
        try:
            thing.write(0, WRONG)
        except HalError as error:
            refused.append(error)

    other = threading.Thread(target=write)

    sha256 = hashlib.sha256

    def digest(data: Any) -> Any:
        found = sha256(data)
        other.start()
        other.join(0.2)
        return found

    monkeypatch.setattr(hashlib, "sha256", digest)
    thing.seal(64)
    other.join()
    assert thing.complete
    assert thing.buffer.tobytes() == RIGHT
    assert len(refused) == 1


def test_sealed_bytes_are_read_only() -> None:
    """The driver copies what is writable: its owner could change what has been checked."""
    open_, sealed = (
        MemoryObject(np.frombuffer(bytearray(RIGHT), np.uint8), sha256)
        for sha256 in (b"", hashlib.sha256(RIGHT).digest())
    )
    sealed.seal(64)
    assert open_.window(0, None, 3).buffer.flags.writeable
    assert not sealed.window(0, None, 3).buffer.flags.writeable
