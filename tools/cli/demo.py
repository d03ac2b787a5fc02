"""`nnhal demo`: a service in a process of its own classifies handwritten digits."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import typer

from tools.cli.console import make_console
from tools.cli.errors import FAILED, reporting_errors
from tools.cli.options import CONNECT_S

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.console import Console

    from nnhal.embedded import EmbeddedService
    from nnhal.types import Bytes

DRAWN = 8
GAP = 2
SHADES = " ░▒▓█"
ASCII_SHADES = " .:*#"


@dataclass(frozen=True)
class Classified:
    """The answers of the model to N images. Times in seconds."""

    answers: "npt.NDArray[np.int64]"
    prepare_s: float
    execute_s: Sequence[float]


@reporting_errors()
def demo() -> None:
    """Start a service, prepare a model on it and classify handwritten digits.

    The exit code is 1 when 95 % of the answers or fewer are right.
    """
    import numpy as np

    from nnhal.embedded import EmbeddedService
    from tools.demo.train_digits import DEMO_FOLDER, LEAST_ACCURACY

    console = make_console()
    with np.load(DEMO_FOLDER / "digits.npz") as digits:
        images, labels = digits["images"], digits["labels"]
    began = time.perf_counter()
    with console.status("starting a service", spinner="line") as status, closing(EmbeddedService()) as service:
        start_s = time.perf_counter() - began
        status.stop()
        result = _classify(console, service, images)
    right = int((result.answers == labels).sum())
    _tell(console, service, len(images))
    _draw(console, images, result.answers, labels)
    console.print(f"accuracy {right / len(labels):.1%} ({right} of {len(labels)} held-back digits)")
    console.print(
        f"service start {start_s:.2f} s, prepare {result.prepare_s * 1e3:.1f} ms, "
        f"execute {median(result.execute_s) * 1e3:.2f} ms (median)"
    )
    if right / len(labels) <= LEAST_ACCURACY:
        raise typer.Exit(FAILED)


def _classify(console: "Console", service: "EmbeddedService", images: "Bytes") -> Classified:
    """Prepares the demo model on a service and runs it on images uint8 [N,8,8], one at a time."""
    import numpy as np
    from rich.progress import track

    import nnhal
    from nnhal import tflite
    from tools.demo.train_digits import DEMO_FOLDER, scale_pixels

    model = tflite.load(DEMO_FOLDER / "digits.tflite")
    answers, execute_s = [], []
    with nnhal.connect(service.target, timeout=CONNECT_S) as device:
        began = time.perf_counter()
        prepared = device.prepare(model).result()
        prepare_s = time.perf_counter() - began
        for image in track(
            scale_pixels(images), "classifying digits", console=console, transient=True, disable=not console.is_terminal
        ):
            began = time.perf_counter()
            outputs = prepared.execute([image[np.newaxis]])
            execute_s.append(time.perf_counter() - began)
            answers.append(outputs["probabilities"][0].argmax())
    return Classified(np.array(answers), prepare_s, execute_s)


def _tell(console: "Console", service: "EmbeddedService", count: int) -> None:
    console.print(f"A service ran as process {service.pid} and listened on {service.target}.", soft_wrap=True)
    console.print("The model went to it over gRPC and was prepared there. Then each of the")
    console.print(f"{count} images went over gRPC, and ten probabilities came back.")


def _draw(console: "Console", images: "Bytes", answers: "npt.NDArray[np.int64]", labels: "Bytes") -> None:
    """Draws some digits side by side, answers and labels below them; a wrong one is among them, if there is one."""
    import numpy as np

    wrong = answers != labels
    chosen = np.arange(DRAWN)
    if wrong.any() and not wrong[chosen].any():
        chosen[-1] = wrong.argmax()
        console.print(f"{DRAWN} of them, the first wrong one last:")
    console.print()
    for row in _shaded(images[chosen], ASCII_SHADES if console.options.ascii_only else SHADES):
        _print_side_by_side(console, row, wrong[chosen])
    _print_side_by_side(console, [f"answer {answer}" for answer in answers[chosen]], wrong[chosen])
    _print_side_by_side(console, [f"label {label} " for label in labels[chosen]], wrong[chosen])
    if wrong[chosen].any():
        _print_side_by_side(console, ["WRONG   " if is_wrong else " " * 8 for is_wrong in wrong[chosen]], wrong[chosen])
    console.print()


def _print_side_by_side(console: "Console", pieces: Sequence[str], wrong: "npt.NDArray[np.bool_]") -> None:
    """Prints a line of pieces, those of wrong answers in red."""
    from rich.text import Text

    styled = [Text(piece, "bold red" if is_wrong else "") for piece, is_wrong in zip(pieces, wrong, strict=True)]
    console.print(Text(" ") + Text(" " * GAP).join(styled), no_wrap=True)


def _shaded(images: "Bytes", shades: str) -> list[list[str]]:
    """Rows of images [N,8,8] as text: for each row the N pieces of it, a character for each pixel."""
    from tools.demo.train_digits import HIGHEST_PIXEL

    levels = (images.astype(int) * (len(shades) - 1) + HIGHEST_PIXEL // 2) // HIGHEST_PIXEL
    return [["".join(shades[level] for level in line) for line in row] for row in levels.swapaxes(0, 1)]
