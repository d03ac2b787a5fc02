"""`nnhal token create`: a token that is printed once, and the line by which a service knows it."""

from pathlib import Path

from nnhal_service.identity.tokens import TokenTable, token_digest
from tests.tools.cli.command import invoke


def test_the_line_makes_the_token_valid(tmp_path: Path) -> None:
    result = invoke("token", "create", "team/alice")
    assert result.exit_code == 0
    token, line = result.stdout.strip(), result.stderr.strip()
    assert token not in line
    (tmp_path / "tokens").write_text(line + "\n")
    assert TokenTable(tmp_path / "tokens").name(token_digest(token)) == "team/alice"


def test_an_invalid_name_is_an_error() -> None:
    result = invoke("token", "create", "two words")
    assert result.exit_code == 2
    assert "invalid name 'two words'" in result.output
