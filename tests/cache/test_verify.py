"""What verification finds, and that it finds nothing where all is well."""

import hmac
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cache.store import Store
from cache.verify import verify
from tests.cache.entries import save, token

KEY = b"k" * 32


def sealed(number: int) -> bytes:
    body = b"model" * 300_000
    return body + hmac.digest(KEY, body + token(number), "sha256")


@pytest.fixture
def entry(store: Store) -> Path:
    save(store, 1, sealed(1))
    return store.layout.entry("me", token(1)).resolve()


def problems(store: Store, key: bytes | None = KEY) -> tuple[str, ...]:
    (verdict,) = verify(store, key)
    assert verdict.token == token(1).hex()
    return verdict.problems


def test_a_good_entry_has_no_problems_and_no_hits(store: Store, entry: Path) -> None:
    assert problems(store) == ()
    assert store.list()[0].hits == 0


def test_an_empty_place_has_no_entries(store: Store) -> None:
    assert verify(store, KEY) == []


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("text", "spoil"),
    [
        ("seal of the model", lambda entry: flip(entry / "model", 0)),
        ("seal of the model", lambda entry: flip(entry / "model", 1_499_999)),
        ("seal of the model", lambda entry: flip(entry / "model", -1)),
        ("model has 10 bytes, not 1500032", lambda entry: os.truncate(entry / "model", 10)),
        ("data has 5 bytes, not 4", lambda entry: (entry / "data").write_bytes(b"12345")),
        ("missing: data, used", lambda entry: ((entry / "data").unlink(), (entry / "used").unlink())),
        ("does not belong here: core", lambda entry: (entry / "core").touch(0o600)),
        ("data has mode 644, more than 600", lambda entry: (entry / "data").chmod(0o644)),
        ("its folder has mode 755, more than 700", lambda entry: entry.chmod(0o755)),
        ("data is not a file", lambda entry: ((entry / "data").unlink(), (entry / "data").symlink_to("model"))),
        ("description is damaged", lambda entry: (entry / "about").write_text("{}")),
        ("a size is negative", lambda entry: edit(entry / "about", '"data_bytes": 4', '"data_bytes": -4')),
        ("that of 'you', whose it is not", lambda entry: edit(entry / "about", '"me"', '"you"')),
        ("the entry of token 00", lambda entry: edit(entry / "about", token(1).hex(), "00")),
        ("its folder is not there", lambda entry: entry.rename(entry.with_name("away"))),
    ],
)
def test_what_is_wrong_is_found(store: Store, entry: Path, text: str, spoil: Callable[[Path], object]) -> None:
    spoil(entry)
    assert any(text in problem for problem in problems(store)), problems(store)


def test_an_entry_of_another_token_is_found(store: Store) -> None:
    save(store, 1, sealed(2))
    assert any("seal" in problem for problem in problems(store))


def test_without_a_key_seals_are_not_looked_at(store: Store, entry: Path) -> None:
    flip(entry / "model", 0)
    assert problems(store, None) == ()
