"""`nnhal run`: files, images, deadlines and traces."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nnhal.client import Outputs, PreparedModel
from nnhal.types import AnyArray
from nnhal_tools.cli.model import load_model
from nnhal_tools.demo import digits
from tests.shared import shared
from tests.tools.cli.command import DIGITS, UNREACHABLE, assert_fails, invoke
from tests.trace_format import check_trace


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--image", "{}/none.png"], "none.png: No such file"),
        (["--image", "{}/text"], "unknown image format"),
        (["--input", "{}/none.npy"], "cannot read {}/none.npy: No such file"),
        (["--input", "{}/text"], "it has another format; expected a .npy file"),
        (["--labels", "{}/none.txt"], "none.txt: No such file"),
        (["--labels", "{}/text"], "has 2 labels; expected 10"),
        (["--image", "{}/text", "--input", "{}/text"], "not both"),
    ],
)
def test_invalid_files_are_rejected(options: list[str], word: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("first\nsecond\n")
    assert_fails(
        invoke("run", DIGITS, "--target", UNREACHABLE, *(o.format(tmp_path) for o in options)), 2, word.format(tmp_path)
    )


def test_invalid_models_are_rejected(tmp_path: Path) -> None:
    assert_fails(invoke("run", tmp_path / "none.tflite"), 2, "none.tflite: No such file")
    (tmp_path / "text.tflite").write_text("no model at all")
    assert_fails(invoke("run", tmp_path / "text.tflite"), 2, "text.tflite", "TFL3")


def test_best_classes_of_an_image_are_shown(target: str, tmp_path: Path) -> None:
    images, labels = digits.load_images()
    pixels, label = images[0], int(labels[0])
    Image.fromarray((pixels * 15.9).astype(np.uint8)).save(tmp_path / "digit.png")
    (tmp_path / "labels.txt").write_text("".join(f"the digit {i}\n" for i in range(10)))
    options = ["--image", tmp_path / "digit.png", "--labels", tmp_path / "labels.txt", "--repeat", 3]
    result = invoke("run", DIGITS, "--target", target, *options)
    assert result.exit_code == 0, result.output
    rows = [row.split() for row in result.stdout.splitlines() if "the digit" in row]
    assert len(rows) == 5 and rows[0][1] == str(label) and float(rows[0][-2]) > 0.9
    assert re.search(r"prepare [\d.]+ ms, execute [\d.]+ ms \(median of 3\)", result.stdout)
    assert result.stderr == "" and "\x1b" not in result.stdout


def test_arrays_are_read_and_saved(target: str, tmp_path: Path) -> None:
    images, labels = digits.load_images()
    np.save(tmp_path / "in.npy", digits.scale_pixels(images[:1]))
    label = labels[0]
    result = invoke("run", DIGITS, "--target", target, "--input", tmp_path / "in.npy", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    saved = np.load(tmp_path / "out" / "probabilities.npy")
    assert saved.shape == (1, 10) and saved.dtype == np.float32 and saved.argmax() == label
    assert "random" not in result.stdout


def test_random_inputs_are_reported(target: str) -> None:
    assert "inputs: random, seed 0" in invoke("run", DIGITS, "--target", target).stdout


def test_results_are_printed_as_json(target: str, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("".join(f"the digit {i}\n" for i in range(10)))
    options = ["--target", target, "--labels", tmp_path / "labels.txt", "--repeat", 3, "--output", tmp_path / "out"]
    result = invoke("run", DIGITS, "--json", *options)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    best = facts["classes"][0]
    assert len(facts["classes"]) == 5 and best["label"] == f"the digit {best['class']}"
    (output,) = facts["outputs"]
    assert (output["output"], output["shape"], output["dtype"]) == ("probabilities", [1, 10], "float32")
    assert output["max"] == best["probability"]
    assert facts["saved"] == [str(tmp_path / "out" / "probabilities.npy")]
    assert facts["prepare_ms"] > 0 and len(facts["execute_ms"]) == 3


def test_errors_of_the_device_are_reported(target: str, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 9, 8, 1), np.float32))
    result = invoke("run", DIGITS, "--target", target, "--input", tmp_path / "in.npy")
    assert_fails(result, 2, "[1, 9, 8, 1]", "[1, 8, 8, 1]")
    assert_fails(
        invoke("run", DIGITS, "--target", target, "--deadline", 0), 1, "MISSED_DEADLINE_PERSISTENT", "preparation"
    )


def test_deadline_applies_to_each_execution(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute, deadlines = PreparedModel.execute, []

    def recorded(self: PreparedModel, arrays: list[AnyArray], *, deadline: float | None) -> Outputs:
        deadlines.append(deadline)
        return execute(self, arrays, deadline=deadline)

    monkeypatch.setattr(PreparedModel, "execute", recorded)
    assert invoke("run", DIGITS, "--target", target, "--deadline", 90, "--repeat", 2).exit_code == 0
    assert deadlines == [90, 90]


def test_image_of_a_cat_is_classified(target: str) -> None:
    options = [
        "--image",
        shared("models") / "cat.bmp",
        "--labels",
        shared("models") / "imagenet_labels.txt",
        "--target",
        target,
    ]
    result = invoke("run", shared("models") / "mobilenet_v2_1.0_224_quant.tflite", *options)
    assert result.exit_code == 0, result.output
    best = next(line for line in result.stdout.splitlines() if line.startswith("│"))
    assert "Egyptian cat" in best


def test_trace_is_written(target: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    result = invoke("run", DIGITS, "--target", target, "--repeat", 2, "--trace", path)
    assert result.exit_code == 0, result.output
    assert "The profiled execution took" in result.stdout and "ordinary one" in result.stdout
    events = check_trace(path.read_text())
    categories = Counter(event["cat"] for event in events)
    operations = len(load_model(DIGITS).main.operations)
    assert (categories["operation"], categories["partition"]) == (2 * operations, 2)
    assert {"client", "transfer", "service"} <= set(categories) and "work" not in categories
    (origin,) = {event["args"]["origin"] for event in events if event["name"] == "SOFTMAX"}
    assert origin == "operator 4 (SOFTMAX)"
    assert f"trace with {len(events)} spans" in result.stdout
    profile = json.loads(invoke("run", DIGITS, "--target", target, "--json", "--trace", path).stdout)["profile"]
    assert profile["operations_us"] + profile["between_us"] == pytest.approx(profile["profiled_us"])
    fails_to_write = invoke("run", DIGITS, "--target", target, "--trace", tmp_path / "no" / "trace.json")
    assert fails_to_write.exit_code == 2 and "cannot write" in fails_to_write.stderr
