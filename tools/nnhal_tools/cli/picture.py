"""Pictures in terminals with colors: two pixels in each character, one above the other."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_COLOR_SYSTEMS = ("256", "truecolor")
_UPPER_HALF = "▀"
_WIDTH = 44
"""Largest width of a picture in columns. A column is about half as wide as a line is high."""
_GAP = 2
"""Columns between a picture and a table."""


def shows_pictures(console: "Console") -> bool:
    """Return whether a console is a terminal with enough colors, and can show half blocks."""
    has_colors = console.color_system in _COLOR_SYSTEMS and not console.no_color
    return console.is_terminal and has_colors and not console.options.ascii_only


def beside_picture(console: "Console", path: Path, table: "Table") -> "RenderableType":
    """Return a picture and a table: beside each other, or one below the other if the terminal is narrow."""
    from rich.console import Group
    from rich.table import Table as Grid

    table_width = console.measure(table).maximum
    width = min(_WIDTH, console.width - _GAP - table_width)
    if width < _WIDTH // 2:
        return Group(draw_picture(path, console.width), table)
    grid = Grid.grid(padding=(0, _GAP))
    grid.add_row(draw_picture(path, width), table)
    return grid


def draw_picture(path: Path, width: int) -> "Text":
    """Return an image as colored text of at most `width` columns, and half as many lines."""
    from PIL import Image
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    side = min(width, _WIDTH)
    with Image.open(path) as image:
        scale = side / max(image.size)
        # an even height, because each character has two pixels
        size = max(round(image.width * scale), 1), 2 * max(round(image.height * scale / 2), 1)
        pixels = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    text = Text(no_wrap=True)
    for y in range(0, pixels.height, 2):
        if y:
            text.append("\n")
        for x in range(pixels.width):
            upper, lower = (Color.from_rgb(*pixels.getpixel((x, row))) for row in (y, y + 1))  # type: ignore[misc]
            text.append(_UPPER_HALF, Style(color=upper, bgcolor=lower))
    return text
