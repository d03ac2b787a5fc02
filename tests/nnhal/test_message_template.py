"""Message templates: a filled template equals what protobuf encodes."""

import numpy as np
import pytest

from nnhal import message_template
from nnhal.message_template import MessageTemplate, inline_memories
from tests.nnhal.messages import request


@pytest.mark.parametrize("sizes", [(1,), (127,), (128,), (4, 70000), (1, 1, 1), (300, 2, 129)])
def test_filled_template_is_the_message(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    template = MessageTemplate.of(request(*(bytes(size) for size in sizes)), inline_memories)
    assert template is not None
    for _ in range(5):
        values = [random.integers(0, 256, size, np.uint8) for size in sizes]
        encoded = request(*(value.tobytes() for value in values)).SerializeToString()
        assert template.fill(values) == encoded
        assert template.matches(encoded)
        assert [encoded[start:end] for start, end in template.spans] == [value.tobytes() for value in values]


def test_matches_only_messages_with_other_values() -> None:
    template = MessageTemplate.of(request(b"abcd", b"efgh"), inline_memories)
    assert template is not None
    encoded = request(b"ABCD", b"EFGH").SerializeToString()
    value_positions = {position for start, end in template.spans for position in range(start, end)}
    for position in range(len(encoded)):
        changed = bytearray(encoded)
        changed[position] ^= 1
        assert template.matches(bytes(changed)) == (position in value_positions), "only values may differ"
    assert not template.matches(encoded[:-1])
    assert not template.matches(encoded + b"\0")


def test_messages_without_template(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MessageTemplate.of(request(), inline_memories) is None
    assert MessageTemplate.of(request(b"abc", b""), inline_memories) is None
    monkeypatch.setattr(message_template, "MAX_VALUES_BYTES", 10)
    assert MessageTemplate.of(request(bytes(5), bytes(5)), inline_memories) is not None
    assert MessageTemplate.of(request(bytes(5), bytes(6)), inline_memories) is None


def test_making_a_template_does_not_change_the_message() -> None:
    message = request(b"abcd")
    MessageTemplate.of(message, inline_memories)
    assert message == request(b"abcd")
