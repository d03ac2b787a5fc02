"""Numbers of the HAL's types for native backends."""

from tools.dev.native_types import HEADER, text


def test_header_is_up_to_date() -> None:
    assert HEADER.read_text() == text(), "stale: run `python -m tools.dev.native_types --write`"
