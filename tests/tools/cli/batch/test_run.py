"""`nnhal run` on many files: tables, CSV, JSON Lines, pictures, sounds and batches."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nnhal_tools.demo import digits
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.shared import shared
from tests.tools.cli.command import DIGITS, UNREACHABLE, assert_fails, invoke
from tests.tools.cli.models import write_mask_model
from tests.tools.sounds import write_wav


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder with pictures of digits, one of them damaged."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    images, _ = digits.load_images()
    for number, pixels in enumerate(images[:5]):
        Image.fromarray((pixels * 15.9).astype(np.uint8)).save(folder / f"{number}.png")
    (folder / "3.png").write_text("no picture")
    return folder


def test_lines_are_written_as_csv_and_json(target: str, pictures: Path, tmp_path: Path) -> None:
    _, labels = digits.load_images()
    destinations = ["--csv", tmp_path / "out.csv", "--jsonl", tmp_path / "out.jsonl", "--output", tmp_path / "out"]
    result = invoke("run", DIGITS, pictures, "--target", target, *destinations, "--draw", tmp_path / "drawn")
    assert result.exit_code == 1 and "1 file failed; the first: " in result.stderr
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["file", "class", "probability", "error"]
    assert [row["file"] for row in rows] == [str(pictures / f"{number}.png") for number in range(5)]
    assert "unknown image format" in rows.pop(3)["error"]
    assert [int(row["class"]) for row in rows] == [int(labels[number]) for number in (0, 1, 2, 4)]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[0]["kind"] == "classification" and len(lines[0]["classes"]) == 5 and "error" in lines[3]
    with np.load(tmp_path / "out" / "0.npz") as saved:
        assert saved["probabilities"].argmax() == labels[0]
    drawn = sorted(path.name for path in (tmp_path / "drawn").iterdir())
    assert drawn == ["0.png", "1.png", "2.png", "4.png"] and "saved 4 pictures in" in result.stdout


def test_table_and_json_have_a_row_for_each_file(target: str, pictures: Path) -> None:
    files = [pictures / "0.png", pictures / "1.png"]
    result = invoke("run", DIGITS, *files, "--target", target)
    assert result.exit_code == 0, result.output
    assert all(f"│ {path} │" in result.stdout for path in files) and "2 files in" in result.stdout
    facts = json.loads(invoke("run", DIGITS, *files, "--target", target, "--json").stdout)
    assert [line["file"] for line in facts] == [str(path) for path in files]


def test_one_file_needs_no_option(target: str, pictures: Path, tmp_path: Path) -> None:
    result = invoke("run", DIGITS, pictures / "0.png", "--target", target, "--draw", tmp_path / "drawn", "--cache")
    assert result.exit_code == 0, result.output
    assert "image: resized to 8x8" in result.stdout and f"saved {tmp_path / 'drawn' / '0.png'}" in result.stdout
    assert "cache: CacheOutcome(" in result.stdout
    np.save(tmp_path / "in.npy", np.zeros((1, 8, 8, 1)))  # float64
    assert invoke("run", DIGITS, tmp_path / "in.npy", "--target", target).exit_code == 0


def test_normalization_of_the_user_applies_to_each_image(target: str, tmp_path: Path) -> None:
    """Digits in black on white, for a model that takes white on black."""
    images, labels = digits.load_images()
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for path, pixels in zip(paths, images, strict=False):
        Image.fromarray((255 - pixels * 15.9).astype(np.uint8)).save(path)
    options = ("--normalize", "255/-255", "--target", target)
    facts = json.loads(invoke("run", DIGITS, *paths, *options, "--json").stdout)
    assert [line["classes"][0]["class"] for line in facts] == labels[:2].tolist()
    assert (
        "image: resized to 8x8, (pixels - 255) / -255, from --normalize"
        in invoke("run", DIGITS, paths[0], *options).stdout
    )


@pytest.mark.parametrize("batch", [2, 3])
def test_batches_change_no_result(batch: int, target: str, tmp_path: Path) -> None:
    model, folder = write_mask_model(tmp_path), tmp_path / "pictures"
    folder.mkdir()
    for number in range(5):
        pixels = np.zeros((4, 4, 3), np.uint8)
        pixels.reshape(16, 3)[:number] = 255
        Image.fromarray(pixels).save(folder / f"{number}.png")
    arguments = ["run", model, folder, "--target", target, "--json", "--shape", "image=1,4,4,3"]
    plain, batched = invoke(*arguments), invoke(*arguments, "--batch", batch)
    assert plain.exit_code == batched.exit_code == 0, batched.output
    assert json.loads(plain.stdout) == json.loads(batched.stdout)
    shares = [line["segments"][-1].get("share") for line in json.loads(plain.stdout)]
    assert shares == [1, 1 / 16, 2 / 16, 3 / 16, 4 / 16]


def test_sounds_are_classified(target: str, tmp_path: Path) -> None:
    level = Op(
        "REDUCE_MAX",
        [Tensor((1, 4), name="samples"), ints(1)],
        [top := Tensor((1, 1))],
        options("Reducer", keepDims=True),
    )
    scores = Op("CONCATENATION", [top, top], [Tensor((1, 2), name="scores")], options("Concatenation", axis=1))
    (tmp_path / "sound.tflite").write_bytes(build(level, scores))
    for name, samples in (("one", [0, 0.5]), ("two", [0, 0.5, 0, 0, 0.25, 0.25])):
        write_wav(tmp_path / f"{name}.wav", samples)
    result = invoke("run", tmp_path / "sound.tflite", tmp_path, "--target", target, "--json")
    assert result.exit_code == 0, result.output
    assert [line["classes"][0]["probability"] for line in json.loads(result.stdout)] == [0.5, 0.375]
    result = invoke("run", tmp_path / "sound.tflite", tmp_path / "two.wav", "--target", target)
    assert "sound: 2 parts of the input's length" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--csv", "{}/out.csv"], "need files"),
        (["{}/0.png", "{}/1.png", "--trace", "{}/trace"], "--trace needs one file"),
        (["{}/0.png", "{}/1.png", "--draw", "{}/drawn.png"], "is not a folder"),
        (["{}/0.png", "{}/1.png", "--input", "{}/in.npy"], "give files or --input, not both"),
        (["{}", "--csv", "{}/no/out.csv"], "there is no folder"),
    ],
)
def test_options_that_do_not_fit_many_files_are_rejected(arguments: list[str], word: str, pictures: Path) -> None:
    assert_fails(
        invoke("run", DIGITS, *(each.format(pictures) for each in arguments), "--target", UNREACHABLE), 2, word
    )


def test_batch_needs_a_model_that_takes_one(target: str, pictures: Path) -> None:
    result = invoke("run", DIGITS, pictures / "0.png", "--target", target, "--batch", 2)
    assert result.exit_code in (1, 2) and "Traceback" not in result.output


@pytest.mark.slow
def test_nothing_found_is_said(target: str) -> None:
    pictures = [shared("models/cat.bmp"), shared("models/grace_hopper.bmp")]
    result = invoke(
        "run", shared("models/hand_landmark_lite.tflite"), *pictures, "--target", target, "--draw", "/tmp/none"
    )
    assert result.exit_code == 0, result.output
    assert "no picture is drawn: the outputs are of no known kind" in result.stdout
