"""Bearer tokens: sent with each call of both clients, and read from files that may be replaced."""

from pathlib import Path

import pytest

import nnhal
import nnhal.aio
from nnhal.client.security.token import TokenFileReader
from nnhal.errors import HalError
from tests.redirecting_server import redirecting


async def test_tokens_of_a_function() -> None:
    tokens = iter(("never sent", "first", "second", "third", "fourth", "fifth", "sixth"))
    seen: list[str] = []

    def token() -> str:
        seen.append(next(tokens).replace(" ", "-"))
        return seen[-1]

    with redirecting() as server:
        with nnhal.connect(server.target, token=token):
            assert server.headers == ["Bearer first"]
        async with nnhal.aio.connect(server.target, token=token):
            assert server.headers[1:] == [f"Bearer {seen[-1]}"]


def test_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    reader = TokenFileReader(path)
    with pytest.raises(HalError, match=f"cannot read the token in {path}: no such file"):
        reader()
    path.write_text("first\n")
    assert reader() == "first"
    path.write_text("second")
    assert reader() == "first"  # for a second
    monkeypatch.setattr(TokenFileReader, "REFRESH_S", 0.0)
    assert reader() == "second"
    path.write_text("")  # half-written
    assert reader() == "second"
    path.unlink()
    assert reader() == "second"
