"""Verification: each kind of problem is found, and an intact entry has none."""

import hmac
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal_cache.store import Store
from nnhal_cache.verify import verify_entries
from tests.cache.entries import flip, save, token

KEY = b"k" * 32


def sealed(number: int) -> bytes:
    body = b"model" * 300_000
    return body + hmac.digest(KEY, body + token(number), "sha256")


@pytest.fixture
def entry(store: Store) -> Path:
    save(store, 1, sealed(1))
    return store.layout.entry_link("me", token(1)).resolve()


def problems(store: Store, key: bytes | None = KEY) -> tuple[str, ...]:
    (entry,) = verify_entries(store, key)
    assert entry.token == token(1).hex()
    return entry.problems


def test_intact_entry_has_no_problems_and_no_hits(store: Store, entry: Path) -> None:
    assert problems(store) == ()
    assert store.list()[0].hits == 0


def test_missing_directory_has_no_entries(store: Store) -> None:
    assert verify_entries(store, KEY) == []


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def replace_with_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        ("seal of the model", lambda entry: flip(entry / "model", 0)),
        ("seal of the model", lambda entry: flip(entry / "model", 1_499_999)),
        ("seal of the model", lambda entry: flip(entry / "model", -1)),
        ("model has 10 bytes; expected 1500032", lambda entry: os.truncate(entry / "model", 10)),
        ("data has 5 bytes; expected 4", lambda entry: (entry / "data").write_bytes(b"12345")),
        ("missing: data, used", lambda entry: ((entry / "data").unlink(), (entry / "used").unlink())),
        ("unknown files: core", lambda entry: (entry / "core").touch(0o600)),
        ("data has mode 644; expected 600", lambda entry: (entry / "data").chmod(0o644)),
        ("its folder has mode 755; expected 700", lambda entry: entry.chmod(0o755)),
        ("data is not a file", lambda entry: ((entry / "data").unlink(), (entry / "data").symlink_to("model"))),
        ("model is not a file", lambda entry: replace_with_pipe(entry / "model")),
        ("manifest is damaged", lambda entry: (entry / "about").write_text("{}")),
        ("a size is negative", lambda entry: edit(entry / "about", '"data_bytes": 4', '"data_bytes": -4')),
        ("the identity 'you', which is not its owner", lambda entry: edit(entry / "about", '"me"', '"you"')),
        ("names the token 00", lambda entry: edit(entry / "about", token(1).hex(), "00")),
        ("its folder does not exist", lambda entry: entry.rename(entry.with_name("away"))),
    ],
)
def test_problem_is_found(store: Store, entry: Path, text: str, damage: Callable[[Path], object]) -> None:
    damage(entry)
    assert any(text in problem for problem in problems(store)), problems(store)


def test_seal_of_another_token_is_invalid(store: Store) -> None:
    save(store, 1, sealed(2))
    assert any("seal" in problem for problem in problems(store))


def test_seals_are_not_checked_without_a_key(store: Store, entry: Path) -> None:
    flip(entry / "model", 0)
    assert problems(store, None) == ()
