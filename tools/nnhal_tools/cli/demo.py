"""`nnhal demo`: classifies handwritten digits on a service in a process of its own."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import typer

from nnhal_tools.cli.console import make_console, print_text
from nnhal_tools.cli.errors import FAILED
from nnhal_tools.cli.options import CONNECT_S

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.console import Console

    from nnhal.embedded import EmbeddedService
    from nnhal.types import Bytes

DRAWN_DIGITS = 8
GAP = 2
"""Columns between two digits."""
SHADES = " ░▒▓█"
ASCII_SHADES = " .:*#"


@dataclass(frozen=True)
class Classification:
    """The model's answers for N images.

    Attributes:
        answers: the digit with the highest probability, for each image.
    """

    answers: "npt.NDArray[np.int64]"
    prepare_s: float
    execute_s: Sequence[float]


def demo() -> None:
    """Start a service, prepare a model on it and classify handwritten digits.

    The exit code is 1 unless more than 95 % of the answers are correct.
    """
    from nnhal.embedded import EmbeddedService
    from nnhal_tools.demo import digits

    console = make_console()
    images, labels = digits.load_images()
    start = time.perf_counter()
    with console.status("starting a service", spinner="line") as status, closing(EmbeddedService()) as service:
        start_s = time.perf_counter() - start
        status.stop()
        result = _classify(console, service, images)
    correct = int((result.answers == labels).sum())
    print_text(console, f"A service ran as process {service.pid} and listened on {service.target}.")
    console.print("It received the model over gRPC and prepared it. It then received")
    console.print(f"{len(images)} images, one at a time, and returned ten probabilities for each.")
    _draw(console, images, result.answers, labels)
    console.print(f"accuracy {correct / len(labels):.1%} ({correct} of {len(labels)} held-back digits)")
    console.print(
        f"service start {start_s:.2f} s, prepare {result.prepare_s * 1e3:.1f} ms, "
        f"execute {median(result.execute_s) * 1e3:.2f} ms (median)"
    )
    if correct / len(labels) <= digits.REQUIRED_ACCURACY:
        raise typer.Exit(FAILED)


def _classify(console: "Console", service: "EmbeddedService", images: "Bytes") -> Classification:
    """Prepare the model on a service, and run it on images uint8 [N,8,8], one at a time."""
    import numpy as np
    from rich.progress import track

    import nnhal
    from nnhal import tflite
    from nnhal_tools.demo import digits

    model = tflite.load(digits.MODEL)
    answers, execute_s = [], []
    with nnhal.connect(service.target, timeout=CONNECT_S) as device:
        start = time.perf_counter()
        prepared = device.prepare(model).result()
        prepare_s = time.perf_counter() - start
        inputs = digits.scale_pixels(images)
        progress = track(inputs, "classifying digits", console=console, transient=True, disable=not console.is_terminal)
        for image in progress:
            start = time.perf_counter()
            outputs = prepared.execute([image[np.newaxis]])
            execute_s.append(time.perf_counter() - start)
            answers.append(outputs["probabilities"][0].argmax())
    return Classification(np.array(answers), prepare_s, execute_s)


def _draw(console: "Console", images: "Bytes", answers: "npt.NDArray[np.int64]", labels: "Bytes") -> None:
    """Draw some digits side by side, with answers and labels below them. Include a wrong answer if there is one."""
    import numpy as np

    wrong = answers != labels
    drawn = np.arange(DRAWN_DIGITS)
    if wrong.any() and not wrong[drawn].any():
        drawn[-1] = wrong.argmax()
        console.print(f"{DRAWN_DIGITS} of them, the last one misclassified:")
    console.print()
    for row in _to_text(images[drawn], ASCII_SHADES if console.options.ascii_only else SHADES):
        _print_side_by_side(console, row, wrong[drawn])
    _print_side_by_side(console, [f"answer {answer}" for answer in answers[drawn]], wrong[drawn])
    _print_side_by_side(console, [f"label {label} " for label in labels[drawn]], wrong[drawn])
    if wrong[drawn].any():
        _print_side_by_side(console, ["WRONG   " if is_wrong else " " * 8 for is_wrong in wrong[drawn]], wrong[drawn])
    console.print()


def _print_side_by_side(console: "Console", pieces: Sequence[str], wrong: "npt.NDArray[np.bool_]") -> None:
    """Print pieces of text as one line, those of wrong answers in red."""
    from rich.text import Text

    styled = [Text(piece, "bold red" if is_wrong else "") for piece, is_wrong in zip(pieces, wrong, strict=True)]
    console.print(Text(" ") + Text(" " * GAP).join(styled), no_wrap=True)


def _to_text(images: "Bytes", shades: str) -> list[list[str]]:
    """Return images [N,8,8] as text, row by row: each row has N pieces of one character per pixel."""
    from nnhal_tools.demo.digits import HIGHEST_PIXEL

    levels = (images.astype(int) * (len(shades) - 1) + HIGHEST_PIXEL // 2) // HIGHEST_PIXEL
    return [["".join(shades[level] for level in line) for line in row] for row in levels.swapaxes(0, 1)]
