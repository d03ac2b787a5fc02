"""Pictures in terminals."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from rich.table import Table

from nnhal_tools.cli.picture import beside_picture, draw_picture, shows_pictures

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def console(
    *, width: int = 80, encoding: str = "utf-8", colors: str | None = "truecolor", terminal: bool = True
) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, force_terminal=terminal, color_system=colors, width=width)  # type: ignore[arg-type]


def save(path: Path, pixels: object) -> Path:
    Image.fromarray(np.array(pixels, np.uint8)).save(path)
    return path


def test_terminals_with_colors_show_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shows_pictures(console())
    assert shows_pictures(console(colors="256"))
    assert not shows_pictures(console(colors="standard"))
    assert not shows_pictures(console(colors=None))
    assert not shows_pictures(console(encoding="ascii"))
    assert not shows_pictures(console(terminal=False))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_pictures(console())


def test_character_has_two_pixels(tmp_path: Path) -> None:
    text = draw_picture(save(tmp_path / "picture.png", [[RED, GREEN], [BLUE, WHITE]]), 2)
    assert text.plain == "▀▀"
    colors = [(span.style.color.triplet, span.style.bgcolor.triplet) for span in text.spans]  # type: ignore[union-attr]
    assert colors == [(RED, BLUE), (GREEN, WHITE)]


@pytest.mark.parametrize(("height", "width", "lines"), [(100, 50, 20), (50, 100, 10), (3, 3, 20), (1, 100, 1)])
def test_picture_keeps_its_aspect_ratio(tmp_path: Path, height: int, width: int, lines: int) -> None:
    text = draw_picture(save(tmp_path / "picture.png", np.zeros((height, width, 3))), 40)
    assert len(text.plain.splitlines()) == lines
    assert max(map(len, text.plain.splitlines())) == (20 if height > width else 40)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_pictures_of_every_mode_are_drawn(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "picture.tiff"
    Image.new(mode, (4, 4)).save(path)
    assert draw_picture(path, 4).plain == "▀▀▀▀\n▀▀▀▀"


@pytest.mark.parametrize(("width", "is_beside"), [(80, True), (30, False)])
def test_table_is_beside_the_picture_if_there_is_room(tmp_path: Path, width: int, is_beside: bool) -> None:
    path = save(tmp_path / "picture.png", np.zeros((8, 8, 3)))
    table = Table("class", "probability")
    table.add_row("7", "0.9")
    terminal = console(width=width, colors=None)
    with terminal.capture() as capture:
        terminal.print(beside_picture(terminal, path, table))
    lines = capture.get().splitlines()
    assert ("▀" in lines[0] and "━" in lines[0]) == is_beside
    assert "probability" in capture.get() and max(map(len, lines)) <= width
