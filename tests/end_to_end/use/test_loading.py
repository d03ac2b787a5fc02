"""Models that are loaded with a device of their own, and called like functions."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from nnhal_tools.demo import digits
from tests.end_to_end.support.service_process import Service
from tests.nnhal.tflite.build import Op, Tensor, build, options
from tests.nnhal.tflite.metadata_file import IMAGE, TensorDescription, with_metadata

DIFFERENCE = build(
    Op(
        "SUB",
        [Tensor((1, 3), name="a"), Tensor((1, 3), name="b")],
        [Tensor((1, 3), name="difference")],
        options("Sub"),
    )
)
"""A file of a model a - b."""
A, B = np.full((1, 3), 5, np.float32), np.full((1, 3), 3, np.float32)


def test_model_is_called_by_position_and_by_name(service: Service) -> None:
    with nnhal.load(DIFFERENCE, service.target) as model:
        for outputs in (model(A, B), model(b=B, a=A), model({"b": B, "a": A}), model(**{"a": A, "b": B})):
            assert outputs["difference"].tolist() == [[2, 2, 2]]
        with pytest.raises(TypeError, match="by position and by name"):
            model(A, b=B)
        with pytest.raises(nnhal.HalError, match="1 inputs given; the model takes 2"):
            model(A)
        with pytest.raises(nnhal.HalError, match="no input is named 'c'"):
            model(a=A, c=B)
        assert model.owner is not None


def test_bytes_and_shapes_are_accepted(service: Service, tmp_path: Path) -> None:
    (tmp_path / "difference.tflite").write_bytes(DIFFERENCE)
    shapes = {"a": (2, 3), "b": (2, 3)}
    a, b = (np.repeat(array, 2, axis=0) for array in (A, B))
    with nnhal.connect(service.target) as device:
        source: Any
        for source in (DIFFERENCE, bytearray(DIFFERENCE), tmp_path / "difference.tflite"):
            prepared = device.prepare(source, shapes=shapes).result()
            assert prepared(a, b)[0].shape == (2, 3)
            assert device.supported_operations(source) == [True]
        with pytest.raises(TypeError, match=r"the path or the bytes of a \.tflite file, to choose shapes"):
            device.prepare(nnhal.tflite.parse(DIFFERENCE), shapes=shapes)
        with pytest.raises(nnhal.tflite.TfliteError):
            device.prepare(DIFFERENCE, shapes={"c": (1,)})


def test_closed_model_ends_its_session(service: Service) -> None:
    model = nnhal.load(DIFFERENCE, service.target)
    model.close()
    with pytest.raises(nnhal.HalError):
        model(A, B)


def test_embedded_service_ends_with_its_model() -> None:
    model = nnhal.load(digits.MODEL)
    service = model.owner._session._service
    assert model(digits.scale_pixels(digits.load_images()[0][:1])).names == ("probabilities",)
    assert service.running
    model.close()
    assert not service.running


def test_unusable_files_start_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal.client.sync.device.connect", lambda *_: pytest.fail("connected"))
    with pytest.raises(FileNotFoundError):
        nnhal.load(tmp_path / "none.tflite")
    with pytest.raises(nnhal.tflite.TfliteError):
        nnhal.load(b"no model")


def test_asyncio_has_the_same(service: Service) -> None:
    async def call() -> list[list[float]]:
        async with await nnhal.aio.load(DIFFERENCE, service.target) as model:
            return list((await model(a=A, b=B))[0].tolist())

    assert asyncio.run(call()) == [[2, 2, 2]]


def test_inputs_know_the_normalization_of_the_file(service: Service) -> None:
    tensor = Tensor((1, 2, 2, 3), name="image")
    relu = build(Op("RELU", [tensor], [Tensor((1, 2, 2, 3), name="positive")]))
    file = with_metadata(relu, [TensorDescription("image", IMAGE, mean=[100.0], std=[50.0])], [], {})
    with nnhal.load(file, service.target) as model:
        (image,) = model.inputs
        assert image.normalization == ((100.0,), (50.0,))
        outputs = model(image.preprocess(np.full((2, 2, 3), 200, np.uint8)))
        assert set(outputs[0].ravel()) == {2}
