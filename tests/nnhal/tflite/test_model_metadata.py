"""TFLite metadata: what is read, and damaged files."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal import tflite
from nnhal.tflite.model_metadata import BoxFormat, TensorMetadata, parse_metadata
from tests.nnhal.tflite.build import Op, Tensor, build
from tests.nnhal.tflite.metadata_file import (
    AXIS_LABELS,
    BOXES,
    IMAGE,
    VALUE_LABELS,
    TensorDescription,
    pack_metadata,
    with_metadata,
)
from tests.shared import shared

PLAIN = build(Op("RELU", [Tensor((1, 3))], [Tensor((1, 3))]))
FULL = with_metadata(
    PLAIN,
    [TensorDescription("picture", IMAGE, (127.5, 0.0, 1.0), (127.5, 255.0, 2.0))],
    [
        TensorDescription("scores", files={"axis.txt": AXIS_LABELS, "values.txt": VALUE_LABELS}),
        TensorDescription("location", BOXES, order=(1, 0, 3, 2), box=(2, 1)),
    ],
    {"axis.txt": "cat\ndog\n  bird\n\n", "values.txt": "näher\n"},
)


def test_fields_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(FULL)
    metadata = tflite.metadata(tmp_path / "m.tflite")
    assert metadata is not None and metadata.name == "a model"
    assert metadata.inputs == (
        TensorMetadata("picture", content="image", mean=(127.5, 0.0, 1.0), std=(127.5, 255.0, 2.0)),
    )
    scores, location = metadata.outputs
    assert (scores.axis_labels, scores.value_labels) == (("cat", "dog", "  bird"), ("näher",))
    assert location.boxes == BoxFormat((1, 0, 3, 2), "upper left", "pixel") and location.content == "bounding boxes"
    tflite.load(tmp_path / "m.tflite")


def test_file_without_metadata_has_none(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(PLAIN)
    assert tflite.metadata(tmp_path / "m.tflite") is None
    assert parse_metadata(with_metadata(PLAIN)) is not None


def test_errors_name_the_file(tmp_path: Path) -> None:
    for content in (b"", b"no model at all"):
        (tmp_path / "m.tflite").write_bytes(content)
        with pytest.raises(tflite.TfliteError, match=r"^m\.tflite: is not a \.tflite file: the identifier TFL3"):
            tflite.metadata(tmp_path / "m.tflite")


LABELLED = [TensorDescription(files={"a.txt": AXIS_LABELS})]


@pytest.mark.parametrize(
    ("build_file", "message"),
    [
        (lambda: with_metadata(PLAIN, metadata=b"\0\0\0\0M002\0\0\0\0"), "identifier M001 is missing"),
        (lambda: with_metadata(PLAIN, metadata=b"\xff\0\0\0M001"), "damaged or truncated"),
        (lambda: with_metadata(PLAIN, outputs=LABELLED), "'a.txt' is damaged"),
        (lambda: with_metadata(PLAIN, outputs=LABELLED, labels={"b.txt": "cat"}), "there is no file 'a.txt'"),
        (
            lambda: with_metadata(PLAIN, outputs=LABELLED, labels={"a.txt": "cat"}).replace(b"cat", b"dog"),
            "'a.txt' is damaged",
        ),
    ],
)
def test_damaged_metadata_is_rejected(build_file: Callable[[], bytes], message: str) -> None:
    data = build_file()
    with pytest.raises(tflite.TfliteError, match=message):
        parse_metadata(data)


def test_mutated_metadata_never_raises_another_error() -> None:
    generator = random.Random(0)
    start = FULL.index(pack_metadata()[4:8])
    rejected = 0
    for _ in range(1500):
        data = bytearray(FULL)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(start, len(data))] = generator.choice((0, 1, 127, 128, 255))
        if generator.random() < 0.2:
            del data[generator.randrange(start, len(data)) :]
        try:
            parse_metadata(bytes(data))
        except tflite.TfliteError:
            rejected += 1
    assert 150 < rejected < 1500


def test_metadata_of_a_public_model_is_read() -> None:
    metadata = tflite.metadata(shared("models") / "mobilenet_v2_1.0_224_quant.tflite")
    assert metadata is not None
    assert (metadata.inputs[0].mean, metadata.inputs[0].std) == ((127.5,), (127.5,))
    assert len(metadata.outputs[0].labels) == 1001 and metadata.outputs[0].labels[286] == "Egyptian cat"
