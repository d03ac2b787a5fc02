"""Sessions: the name of a client."""

import pytest

from nnhal.client.core.session import program_name


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["/home/user/classify.py", "cat.png"], "classify.py"),
        (["/usr/lib/python3/nnhal_tools/__main__.py"], "nnhal_tools"),
        (["-c"], "-c"),
        ([""], ""),
        ([], ""),
    ],
)
def test_name_of_the_program(monkeypatch: pytest.MonkeyPatch, arguments: list[str], name: str) -> None:
    monkeypatch.setattr("sys.argv", arguments)
    assert program_name() == name
