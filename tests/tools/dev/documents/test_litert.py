"""The page of LiteRT's interface: every member has a program that compares it, and the page is fresh."""

import pytest

pytest.importorskip("ai_edge_litert")

from ai_edge_litert.interpreter import Interpreter

from tests.nnhal.litert.programs import PROGRAMS
from tools.dev.documents.litert import describe, generate, members
from tools.dev.documents.markdown import stale


def test_page_is_fresh() -> None:
    assert not stale(generate())


def test_programs_name_members_only() -> None:
    assert set(PROGRAMS) == {name for name, _ in members()}


def test_new_member_needs_a_counterpart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interpreter, "new_member", lambda self: None, raising=False)
    with pytest.raises(AttributeError, match="new_member"):
        generate()


def test_member_without_a_program_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PROGRAMS, "Interpreter.invoke")
    with pytest.raises(SystemExit, match=r"Interpreter\.invoke of LiteRT has no program"):
        generate()


def test_arguments_have_no_effect_unless_the_page_says_so() -> None:
    assert describe("Interpreter(experimental_new)", None).startswith("no effect")
