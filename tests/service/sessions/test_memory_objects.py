"""Memory objects: complete ones never change."""

import hashlib
import threading
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal_service.sessions.memory_objects import MemoryObject

RIGHT, WRONG = bytes(range(64)), bytes(64)


def test_concurrent_upload_cannot_change_checked_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest matches, and another thread writes before the memory is complete."""
    memory = MemoryObject(np.frombuffer(bytearray(RIGHT), np.uint8), hashlib.sha256(RIGHT).digest())
    errors: list[HalError] = []

    def write() -> None:
        try:
            memory.write(0, WRONG)
        except HalError as error:
            errors.append(error)

    other = threading.Thread(target=write)

    sha256 = hashlib.sha256

    def digest(data: Any) -> Any:
        result = sha256(data)
        other.start()
        other.join(0.2)
        return result

    monkeypatch.setattr(hashlib, "sha256", digest)
    memory.seal(64)
    other.join()
    assert memory.complete
    assert memory.buffer.tobytes() == RIGHT
    assert len(errors) == 1


def test_sealed_bytes_are_read_only() -> None:
    """The driver copies writable memory, because its owner could change checked values."""
    open_, sealed = (
        MemoryObject(np.frombuffer(bytearray(RIGHT), np.uint8), sha256)
        for sha256 in (b"", hashlib.sha256(RIGHT).digest())
    )
    sealed.seal(64)
    assert open_.window(0, None, 3).buffer.flags.writeable
    assert not sealed.window(0, None, 3).buffer.flags.writeable
