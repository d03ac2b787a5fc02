"""Drawing with Pillow: colors, captions and legends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

Color: TypeAlias = tuple[int, int, int]

PALETTE: tuple[Color, ...] = (
    (230, 25, 75),
    (60, 180, 75),
    (0, 130, 200),
    (245, 130, 48),
    (145, 30, 180),
    (70, 240, 240),
    (240, 50, 230),
    (210, 245, 60),
    (250, 190, 212),
    (0, 128, 128),
    (220, 190, 255),
    (170, 110, 40),
    (255, 225, 25),
    (128, 0, 0),
    (170, 255, 195),
    (128, 128, 0),
)
"""Colors that differ from each other. Class 1 has the first one."""
MIN_SIDE, MAX_SIDE = 320, 1600
"""Limits of the size of a picture that is drawn on, in pixels."""
_MAX_CHARACTERS = 48


def class_color(index: int) -> Color:
    """Return the color of a class."""
    return PALETTE[(index - 1) % len(PALETTE)]


def scale_picture(picture: "Image") -> "Image":
    """Return a picture in RGB that is large enough for captions, and not larger than needed."""
    smaller, larger = sorted(picture.size)
    scale = max(MIN_SIDE / smaller, 1.0)
    scale = min(scale, MAX_SIDE / larger)
    size = tuple(max(1, round(side * scale)) for side in picture.size)
    return picture.convert("RGB").resize((size[0], size[1]))


def draw_caption(canvas: "ImageDraw", x: float, y: float, text: str, color: Color) -> None:
    """Draw a text on a background of a color, within the picture."""
    font, text = _font(canvas), _shorten(text)
    left, top, right, bottom = canvas.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 6
    image_width, image_height = canvas.im.size
    x, y = max(0, min(x, image_width - width)), max(0, min(y, image_height - height))
    canvas.rectangle((x, y, x + width, y + height), fill=color)
    canvas.text((x + 3 - left, y + 3 - top), text, fill=_text_color(color), font=font)


def add_legend(picture: "Image", rows: Sequence[tuple[Color | None, str]]) -> "Image":
    """Return a picture with a legend below it: a color, if there is one, and a text in each row."""
    from PIL import Image, ImageDraw

    font = _font(ImageDraw.Draw(picture))
    line = round(1.6 * _font_size(picture.size))
    result = Image.new("RGB", (picture.width, picture.height + line * len(rows) + line // 2), "white")
    result.paste(picture)
    canvas = ImageDraw.Draw(result)
    for i, (color, text) in enumerate(rows):
        y = picture.height + line // 4 + i * line
        if color:
            canvas.rectangle((8, y + 4, 4 + line, y + line - 4), fill=color, outline="black")
        canvas.text((line + 14, y + line // 8), _shorten(text), fill="black", font=font)
    return result


def _font(canvas: "ImageDraw") -> "ImageFont | FreeTypeFont":
    from PIL import ImageFont

    return ImageFont.load_default(_font_size(canvas.im.size))


def _font_size(size: tuple[int, int]) -> int:
    return max(12, min(28, min(size) // 28))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


def _text_color(background: Color) -> str:
    red, green, blue = background
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"
