"""The page of the settings: it is fresh, and its example is valid."""

import re
from pathlib import Path

from nnhal_service.settings_sources import load_settings
from tools.dev.settings_page import DOCUMENT, render


def test_page_is_fresh() -> None:
    assert DOCUMENT.read_text() == render(), "stale: run `python -m tools.dev.settings_page --write`"


def test_example_is_valid(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", render(), re.DOTALL)
    assert example
    (tmp_path / "nnhal.toml").write_text(example[1])
    assert load_settings(tmp_path / "nnhal.toml", {}).settings.limits == {"sessions": 8}
