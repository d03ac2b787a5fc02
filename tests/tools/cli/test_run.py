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
from tests.driver.backends.litert.submodel.detection import detection
from tests.nnhal.tflite.build import Op, Tensor, build, ints
from tests.nnhal.tflite.build import options as operator_options
from tests.shared import shared
from tests.tools.cli.command import DIGITS, UNREACHABLE, assert_fails, invoke
from tests.tools.cli.models import write_counter, write_mask_model
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


def write_picture(folder: Path) -> Path:
    """Write a picture with one white quarter."""
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2, :2] = 255
    Image.fromarray(pixels).save(folder / "picture.png")
    return folder / "picture.png"


def test_mask_is_drawn_with_normalization_and_labels_of_the_metadata(target: str, tmp_path: Path) -> None:
    model, picture = write_mask_model(tmp_path), write_picture(tmp_path)
    options = ["--target", target, "--image", picture, "--draw", tmp_path / "drawn.png"]
    result = invoke("run", model, *options)
    assert result.exit_code == 0, result.output
    assert "image: resized to 4x4, (pixels - 0) / 510, from the metadata\n" in result.stdout
    assert "outputs: segmentation: output mask is [1,4,4,1] for an image of 4x4: a mask" in result.stdout
    assert re.search(r"1 │ snow +│ 25\.00%", result.stdout)
    assert f"saved {tmp_path / 'drawn.png'}" in result.stdout
    with Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.getpixel((20, 20)) != drawn.getpixel((300, 20)) == (0, 0, 0)
    facts = json.loads(invoke("run", model, *options, "--json").stdout)
    assert (facts["kind"], facts["drawn"], facts["states"]) == ("segmentation", str(tmp_path / "drawn.png"), 0)
    assert facts["segments"][1] == {"class": 1, "label": "snow", "share": 0.25} and facts["classes"] == []


def test_damaged_metadata_is_ignored_with_a_warning(target: str, tmp_path: Path) -> None:
    model = write_mask_model(tmp_path)
    model.write_bytes(model.read_bytes().replace(b"labels.txt", b"labels.xyz", 1))
    result = invoke("run", model, "--target", target)
    assert result.exit_code == 0, result.output
    assert "there is no file 'labels.xyz'; continuing without metadata" in result.stderr
    assert "inputs: random" in result.stdout


def test_outputs_of_no_known_kind_are_not_drawn(target: str, tmp_path: Path) -> None:
    # one channel of four has no known meaning
    part = Op(
        "SLICE",
        [Tensor((1, 4, 4, 3), name="image"), ints(0, 0, 0, 0), ints(1, 2, 1, 1)],
        [Tensor((1, 2, 1, 1), name="other")],
        operator_options("Slice"),
    )
    (tmp_path / "part.tflite").write_bytes(build(part))
    options = ["--target", target, "--image", write_picture(tmp_path), "--draw", tmp_path / "drawn.png"]
    result = invoke("run", tmp_path / "part.tflite", *options)
    assert_fails(
        result, 1, "no known kind; looked for the boxes", "TFLite_Detection_PostProcess", "a value for each class"
    )
    assert not (tmp_path / "drawn.png").exists()
    assert "outputs: of no known kind" in invoke("run", tmp_path / "part.tflite", "--target", target).stdout


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--draw", "{}/drawn.png"], "--draw needs an image"),
        (["--draw", "{}/drawn.xyz", "--image", "{}/picture.png"], "unknown image format '.xyz'; use .png"),
        (["--draw", "{}/none/drawn.png", "--image", "{}/picture.png"], "there is no folder {}/none"),
        (["--shape", "image=1,x"], "invalid --shape 'image=1,x': expected NAME=SIZES"),
        (["--shape", "1,8,8,1"], "invalid --shape '1,8,8,1'"),
        (["--shape", "image=1,8,8,1", "--shape", "image=?,8,8,1"], "--shape is given twice for 'image'"),
        (["--shape", "picture=1,8,8,1"], "picture"),
        (["--output", "{}/none/all.npz"], "there is no folder {}/none"),
    ],
)
def test_invalid_options_are_rejected_before_the_run(options: list[str], word: str, tmp_path: Path) -> None:
    write_picture(tmp_path)
    result = invoke("run", DIGITS, "--target", UNREACHABLE, *(option.format(tmp_path) for option in options))
    assert_fails(result, 2, word.format(tmp_path))


def test_archives_of_inputs_and_outputs(target: str, tmp_path: Path) -> None:
    images, labels = digits.load_images()
    np.savez(tmp_path / "in.npz", image=digits.scale_pixels(images[:1]))
    options = ["--target", target, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz"]
    result = invoke("run", DIGITS, *options)
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["probabilities"].argmax() == labels[0]


@pytest.mark.parametrize(("sizes", "expected"), [("2,4,4,3", [2, 4, 4, 1]), ("1,6,8,3", [1, 6, 8, 1])])
def test_shape_replaces_that_of_the_file(sizes: str, expected: list[int], target: str, tmp_path: Path) -> None:
    result = invoke("run", write_mask_model(tmp_path), "--target", target, "--shape", f"image={sizes}", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outputs"][0]["shape"] == expected


def test_runs_of_a_model_with_states_are_steps(target: str, tmp_path: Path) -> None:
    np.save(tmp_path / "step.npy", np.array([[1, 10]], np.float32))
    options = ["--target", target, "--input", tmp_path / "step.npy", "--output", tmp_path / "out.npy", "--repeat", 3]
    result = invoke("run", write_counter(tmp_path), *options)
    assert result.exit_code == 0, result.output
    assert "states: 1, with their initial values; each run is a step of a stream" in result.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), [[3, 30]])
    facts = json.loads(
        invoke("run", tmp_path / "counter.tflite", *options, "--json", "--trace", tmp_path / "trace.json").stdout
    )
    assert facts["states"] == 1 and [row["output"] for row in facts["outputs"]] == ["total"]
    assert facts["profile"]["profiled_us"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "image", "kind", "words"),
    [
        ("deeplabv3_mnv2_dm05_pascal_quant", "cat.bmp", "segmentation", ["number of a class", "│     8 │ 4"]),
        ("selfie_segmentation", "grace_hopper.bmp", "segmentation", ["│ selfie ", "labels from the metadata"]),
        ("mobilenet_v2_1.0_224_quant", "cat.bmp", "classification", ["286 │ Egyptian cat", "labels from the metadata"]),
        ("tf2_mobilenet_v2_1.0_224_ptq", "grace_hopper.bmp", "classification", ["│ military uniform"]),
    ],
)
def test_public_models_are_recognized_and_drawn(
    model: str, image: str, kind: str, words: list[str], target: str, tmp_path: Path
) -> None:
    path, picture = shared("models") / f"{model}.tflite", shared("models") / image
    result = invoke("run", path, "--target", target, "--image", picture, "--draw", tmp_path / "drawn.png")
    assert result.exit_code == 0, result.output
    assert f"outputs: {kind}: " in result.stdout
    for word in words:
        assert word in result.stdout
    with Image.open(picture) as before, Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.size >= before.size
        part = drawn.crop((0, 0, *before.size))
        is_changed = not np.array_equal(np.asarray(part), np.asarray(before.convert("RGB")))
        assert is_changed or drawn.height > before.height


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["movenet_single_pose_lightning_ptq", "face_detection_short_range", "hand_landmark_lite"]
)
def test_outputs_that_only_their_model_explains_are_summarized(model: str, target: str) -> None:
    path, picture = shared("models") / f"{model}.tflite", shared("models") / "grace_hopper.bmp"
    result = invoke("run", path, "--target", target, "--image", picture)
    assert result.exit_code == 0, result.output
    assert "outputs: of no known kind" in result.stdout and "│ float32 │" in result.stdout


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


def test_boxes_of_a_postprocessing_operator_are_shown(target: str, tmp_path: Path) -> None:
    (tmp_path / "detect.tflite").write_bytes(detection(boxes=2, classes=4, max_detections=2))
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.zeros((1, 2, 4), np.float32)
    scores[0, 0, 2], scores[0, 1, 1] = 0.75, 0.625  # class 0 is the background
    anchors = np.array([[0.5, 0.5, 0.2, 0.4], [0.2, 0.2, 0.2, 0.2]], np.float32)
    for i, array in enumerate((boxes, scores, anchors)):
        np.save(tmp_path / f"{i}.npy", array)
    (tmp_path / "labels.txt").write_text("bird\ncat\ndog\n")
    options = [option for i in range(3) for option in ("--input", tmp_path / f"{i}.npy")]
    options += ["--labels", tmp_path / "labels.txt", "--target", target, "--json"]
    result = invoke("run", tmp_path / "detect.tflite", *options)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["kind"] == "detection"
    assert [(box["label"], box["score"]) for box in facts["boxes"]] == [("cat", 0.75), ("bird", 0.625)]
    assert facts["boxes"][0]["box"] == pytest.approx([0.3, 0.4, 0.7, 0.6])


def test_signature_of_a_model_is_chosen(target: str) -> None:
    model = shared("models/multi_signature.tflite")
    result = invoke("run", model, "--target", target)
    assert result.exit_code == 0 and "has the signatures add, mul, sub; using its main subgraph" in result.stderr
    result = invoke("run", model, "--target", target, "--signature", "sub", "--json")
    assert result.exit_code == 0 and result.stderr == "" and '"output"' in result.stdout
    assert_fails(invoke("run", model, "--target", target, "--signature", "none"), 2, "has no signature 'none'")
