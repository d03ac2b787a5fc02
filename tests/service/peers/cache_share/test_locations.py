"""URLs of shares, and the settings that need them."""

from pathlib import Path

import pytest

from nnhal_service.peers.cache_share.locations import check_url, directory_of
from nnhal_service.settings import Settings


def test_share_needs_a_key_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--cache-share needs --cache-key-file"):
        Settings(cache_share=str(tmp_path))
    assert Settings(cache_share=str(tmp_path), cache_key_file=tmp_path / "key").cache_share == str(tmp_path)


def test_directories() -> None:
    assert directory_of("file:///a%20b") == Path("/a b")
    assert directory_of("/share") == Path("/share")
    assert directory_of("s3://bucket/folder") is None


@pytest.mark.parametrize(
    "url, reason",
    [
        ("file://host/share", "expected an absolute path"),
        ("ftp://user:secret@host/", "--models: a URL must not contain a password"),
        ("https://host/folder?key=secret", "must not contain a password or parameters"),
    ],
)
def test_invalid_urls_are_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        check_url(url, "--models")
    assert "secret" not in str(raised.value)


def test_unknown_stores_are_refused() -> None:
    pytest.importorskip("fsspec", reason="the extra `share` is not installed")
    with pytest.raises(ValueError, match="fsspec knows no store 'unknown'"):
        check_url("unknown://bucket", "--models")
