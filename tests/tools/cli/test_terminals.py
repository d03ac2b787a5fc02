"""Output of the commands in terminals of 80 and 160 columns, and in a pipe."""

import fcntl
import os
import re
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

import nnhal
from nnhal.embedded import EmbeddedService
from nnhal_cache.layout import DEFAULT_BYTES
from nnhal_cache.store import Store
from nnhal_tools.demo import digits
from tests.forked_commands import ForkedCommands, running
from tests.shared import shared
from tests.tools.cli.command import DIGITS

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COMMANDS = {
    "info": ("info --target {target}", ["TENSOR_QUANT8_SYMM_PER_CHANNEL", "CpuRef"]),
    "backends": ("backends --target {target}", ["CpuAcc", "CpuRef"]),
    "run": ("run {digits} --target {target}", ["probability"]),
    "run --image": ("run {digits} --target {target} --image {image}", ["probability"]),
    "explain": ("explain {digits} --target {target}", ["TENSOR_FLOAT32", "(FULLY_CONNECTED)", "CpuAcc"]),
    "explain --run": ("explain {digits} --target {target} --run", ["FULLY_CONNECTED", "partition", "(100.0%)"]),
    "explain on CpuRef": ("explain {digits} --target {reference}", ["TENSOR_FLOAT32", "(FULLY_CONNECTED)", "CpuRef"]),
    "compare": ("compare {digits}", ["FULLY_CONNECTED", "CpuAcc"]),
    "cache list": ("cache list --cache-dir {cache}", ["{token}", "anonymous", "CpuRef"]),
    "cache verify": ("cache verify --cache-dir {cache}", ["1 entry, 0 damaged"]),
    "conformance": ("conformance --suite basic,burst --target {target}", ["unsupported", "0 failed"]),
    "conformance --mode support": (
        "conformance --mode support --select *softmax* --sample 1 --target {target}",
        ["SOFTMAX", "CpuAcc"],
    ),
}
"""Commands, and words of their output that a narrow terminal might cut off. `places` has the names in braces."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    with running(tmp_path_factory.mktemp("output")) as commands:
        yield commands


@pytest.fixture(scope="module")
def places(target: str, digit_picture: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Yield the values of the names in braces. The service has a cached model."""
    folder = tmp_path_factory.mktemp("cache")
    options = ("--backends", "CpuRef,CpuAcc", "--cache-dir", str(folder))
    with closing(EmbeddedService(*options)) as other, nnhal.connect(other.target) as device:
        prepared = device.prepare(DIGITS, cache=True).result()
        (entry,) = Store(folder, DEFAULT_BYTES).list()
        assert prepared.cache.state == nnhal.CacheState.SAVED
        yield {
            "target": target,
            "reference": other.target,
            "cache": folder,
            "token": entry.token.hex()[:12],
            "digits": DIGITS,
            "image": digit_picture,
        }


@pytest.fixture(scope="module")
def digit_picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("picture") / "digit.png"
    Image.fromarray((digits.load_images()[0][0] * 15.9).astype(np.uint8)).save(path)
    return path


def in_terminal(commands: ForkedCommands, arguments: list[str], columns: int, folder: Path, **variables: str) -> str:
    """Run a command in a terminal and return what it writes to it."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    received = bytearray()

    def receive() -> None:
        try:
            while data := os.read(master, 65536):
                received.extend(data)
        except OSError:  # the terminal is closed
            pass

    reader = threading.Thread(target=receive)
    reader.start()
    environment = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **variables}
    finished = commands.run(arguments, environment, folder, stdout=os.ttyname(slave))
    os.close(slave)
    reader.join()
    os.close(master)
    assert finished.code == 0, finished.stderr
    return received.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("command", COMMANDS)
def test_output_in_a_terminal(
    command: str, columns: int, commands: ForkedCommands, places: dict[str, object], tmp_path: Path
) -> None:
    line, words = COMMANDS[command]
    arguments = [argument.format_map(places) for argument in line.split()]
    text = ESCAPE.sub("", in_terminal(commands, arguments, columns, tmp_path))
    assert "…" not in text
    assert [line for line in text.splitlines() if cell_len(line) > columns] == []
    assert [word for word in words if word.format_map(places) not in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_output_in_a_pipe(command: str, commands: ForkedCommands, places: dict[str, object], tmp_path: Path) -> None:
    """It has full width and no control characters, so that other programs can read it line by line."""
    line, words = COMMANDS[command]
    finished = commands.run([argument.format_map(places) for argument in line.split()], {}, tmp_path)
    assert finished.code == 0, finished.stderr
    assert not re.search(r"[^\n\x20-\U0010ffff]", finished.stdout)
    assert "…" not in finished.stdout and "▀" not in finished.stdout
    assert [word for word in words if word.format_map(places) not in finished.stdout] == []
    assert finished.stderr == ""


@pytest.mark.parametrize("columns", [80, 160])
def test_long_names_are_whole_in_a_terminal(
    columns: int, commands: ForkedCommands, places: dict[str, object], tmp_path: Path
) -> None:
    model = shared("models") / "kws_ref_model.tflite"
    arguments = ["explain", str(model), "--run", "--target", str(places["target"])]
    text = ESCAPE.sub("", in_terminal(commands, arguments, columns, tmp_path))
    assert "…" not in text and max(map(cell_len, text.splitlines())) <= columns
    for word in ("TENSOR_QUANT8_ASYMM_SIGNED", "[1,25,5,64]", "DEPTHWISE_CONV_2D", "(AVERAGE_POOL_2D)"):
        assert word in text


@pytest.mark.parametrize(
    ("environment", "has_picture"),
    [
        ({"COLORTERM": "truecolor"}, True),
        ({"COLORTERM": "", "TERM": "xterm-256color"}, True),
        ({"COLORTERM": "", "TERM": "xterm"}, False),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1"}, False),
    ],
    ids=str,
)
def test_picture_needs_colors(
    environment: dict[str, str],
    has_picture: bool,
    commands: ForkedCommands,
    places: dict[str, object],
    tmp_path: Path,
) -> None:
    arguments = ["run", str(DIGITS), "--target", str(places["target"]), "--image", str(places["image"])]
    text = in_terminal(commands, arguments, 80, tmp_path, **environment)
    assert ("▀" in text) == has_picture
    assert "probability" in text
