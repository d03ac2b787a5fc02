"""Static tokens: their file, its changes, and how they are created."""

import os
from pathlib import Path

import pytest

from nnhal_service.identity.tokens import PREFIX, TokenTable, create_token, token_digest


def write(path: Path, *lines: str) -> None:
    """Replace a file, as editors and Kubernetes do."""
    other = path.with_name("new")
    other.write_text("\n".join(lines))
    other.replace(path)


def test_a_token_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    token, line = create_token("team/alice@example.org")
    assert token.startswith(PREFIX)
    assert token not in line
    write(tmp_path / "tokens", "# people", "", line + "  # until May")
    file = TokenTable(tmp_path / "tokens")
    assert file.name(token_digest(token)) == "team/alice@example.org"
    assert file.name(token_digest(token + "x")) is None


def test_a_file_that_changes_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    (first, first_line), (second, second_line) = create_token("a"), create_token("b")
    write(path, first_line)
    file = TokenTable(path)
    write(path, second_line)
    file.refresh()
    assert file.name(token_digest(first)) is None
    assert file.name(token_digest(second)) == "b"


@pytest.mark.parametrize("damage", ["delete", "truncate", "writable"])
def test_the_last_valid_contents_count_while_the_file_is_damaged(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    token, line = create_token("a")
    write(path, line)
    file = TokenTable(path)
    match damage:
        case "delete":
            path.unlink()
        case "truncate":
            write(path, line[:-1])
        case _:
            path.chmod(0o666)
    for _ in range(3):
        file.refresh()
    assert file.name(token_digest(token)) == "a"
    assert file.problem
    assert [record.message for record in caplog.records] == ["tokens-unusable"]
    path.unlink(missing_ok=True)
    write(path, create_token("b")[1])
    file.refresh()
    assert not file.problem
    assert file.name(token_digest(token)) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"alice sha256:123", "line 1: expected NAME sha256:DIGEST"),
        (b"\n\nalice plain-text-token", "line 3"),
        (b"\xff", "is not text in UTF-8"),
    ],
)
def test_errors_of_the_file_have_nothing_of_its_lines(tmp_path: Path, text: bytes, error: str) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=error) as caught:
        TokenTable(path)
    assert "plain-text-token" not in str(caught.value)


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        TokenTable(tmp_path / "missing")


def test_a_file_that_others_may_write_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(create_token("a")[1])
    os.chmod(path, 0o620)
    with pytest.raises(ValueError, match="mode 0620; others may write"):
        TokenTable(path)


@pytest.mark.parametrize("name", ["", "two words", "-a", "a" * 129, "a#b"])
def test_invalid_names_are_errors(name: str) -> None:
    with pytest.raises(ValueError, match="invalid name"):
        create_token(name)
