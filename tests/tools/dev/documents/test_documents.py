"""The generated documents are fresh, and stale ones are found."""

import sys
from pathlib import Path

import pytest

from tools.dev.documents import __main__ as documents
from tools.dev.documents.markdown import COMMAND, ROOT, stale, write


@pytest.mark.parametrize(
    "name", [name for name in documents.NAMES if name != "tflite"]
)  # which takes 15 s; CI checks it
def test_document_is_fresh(name: str) -> None:
    """CI also checks the page of TFLite's operators, which takes 15 s."""
    assert stale(documents.generate(name)) == [], f"run `{COMMAND} {name}`"


def test_every_generator_has_a_name() -> None:
    modules = {path.stem for path in Path(documents.__file__).parent.glob("*.py") if "generate(" in path.read_text()}
    assert modules - {"__main__"} == set(documents.NAMES)


def test_stale_documents_are_found(tmp_path: Path) -> None:
    texts = {Path("a.md"): "a\n", Path("folder/b.md"): "b\n"}
    assert stale(texts, tmp_path) == [Path("a.md"), Path("folder/b.md")]
    write(texts, tmp_path)
    assert stale(texts, tmp_path) == []
    (tmp_path / "a.md").write_text("changed\n")
    assert stale(texts, tmp_path) == [Path("a.md")]


def test_check_names_the_stale_document_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "generate", lambda name: {Path("docs/settings.md"): "other"})
    monkeypatch.setattr(sys, "argv", ["documents", "--check", "settings"])
    before = (ROOT / "docs/settings.md").read_text()
    with pytest.raises(SystemExit, match=r"stale: docs/settings\.md; run `.*tools\.dev\.documents --write settings`"):
        documents.main()
    assert (ROOT / "docs/settings.md").read_text() == before


def test_unknown_name_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["documents", "--check", "setings"])
    with pytest.raises(SystemExit):
        documents.main()
    assert "unknown documents: setings" in capsys.readouterr().err
