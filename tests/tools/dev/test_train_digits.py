"""The demo's model: its training, the file that is written, and the committed files."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from nnhal.types import Bytes
from nnhal_tools.demo import digits
from tools.dev import train_digits

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier

OPERATORS = ["RESHAPE", "FULLY_CONNECTED", "FULLY_CONNECTED", "FULLY_CONNECTED", "SOFTMAX"]


@cache
def half_trained(seed: int = 1) -> "MLPClassifier":
    """Return a network after a few epochs, whose biases are not zero."""
    images, labels = digits.load_images()
    return train_digits.train(images, labels, max_iter=5, random_state=seed)


@pytest.fixture(params=["committed", "just written"])
def data(request: pytest.FixtureRequest) -> bytes:
    return digits.MODEL.read_bytes() if request.param == "committed" else train_digits.to_tflite(half_trained())


def accuracy(model: bytes, images: Bytes, labels: Bytes) -> float:
    return float((train_digits.run_tflite(model, images).argmax(1) == labels).mean())


def constant_offsets(data: bytes) -> list[int]:
    """Return the file offset of each constant."""
    model = schema.Model.GetRootAs(data)
    tables = (model.Buffers(i)._tab for i in range(1, model.BuffersLength()))
    return [table.Vector(table.Offset(4)) for table in tables]


def read_model(data: bytes) -> Any:
    return schema.ModelT.InitFromPackedBuf(bytearray(data))


def test_training_is_reproducible_and_learns() -> None:
    images, labels = digits.load_images()
    settings: dict[str, Any] = {"max_iter": 40, "tol": 0}
    first, second = (train_digits.to_tflite(train_digits.train(images, labels, **settings)) for _ in range(2))
    assert first == second
    assert accuracy(first, images, labels) > 0.5


def test_split_holds_back_a_fifth_and_shares_nothing() -> None:
    training, held_back = train_digits.split(1797)
    assert len(held_back) == 359
    assert sorted([*training, *held_back]) == list(range(1797))
    assert np.array_equal(held_back, train_digits.split(1797)[1])


def test_committed_digits_are_the_held_back_ones() -> None:
    images, labels = train_digits.load_digits()
    _, held_back = train_digits.split(len(images))
    shown_images, shown_labels = digits.load_images()
    assert shown_images.dtype == shown_labels.dtype == np.uint8
    assert np.array_equal(shown_images, images[held_back])
    assert np.array_equal(shown_labels, labels[held_back])


def test_model_is_well_formed_and_small(data: bytes) -> None:
    assert data[4:8] == b"TFL3"
    assert len(data) < 100_000
    model = read_model(data)
    assert model.version == 3
    assert model.buffers[0].data is None
    assert all(code.builtinCode == code.deprecatedBuiltinCode for code in model.operatorCodes)
    (graph,) = model.subgraphs
    names = [tensor.name.decode() for tensor in graph.tensors]
    assert [names[i] for i in graph.inputs] == ["image"]
    assert [names[i] for i in graph.outputs] == ["probabilities"]
    assert len(set(names)) == len(names)
    assert all(offset % 16 == 0 for offset in constant_offsets(data))


def test_model_consists_of_the_expected_operators(data: bytes) -> None:
    model = read_model(data)
    codes = [model.operatorCodes[operator.opcodeIndex].builtinCode for operator in model.subgraphs[0].operators]
    assert codes == [getattr(schema.BuiltinOperator, name) for name in OPERATORS]


def test_written_model_computes_what_scikit_learn_computes() -> None:
    network, (images, _) = half_trained(7), digits.load_images()
    assert all(np.abs(bias).max() > 0 for bias in network.intercepts_)
    expected = network.predict_proba(digits.scale_pixels(images).reshape(len(images), -1))
    np.testing.assert_allclose(train_digits.run_tflite(train_digits.to_tflite(network), images), expected, atol=1e-5)


def test_committed_model_recognizes_the_committed_digits() -> None:
    assert accuracy(digits.MODEL.read_bytes(), *digits.load_images()) > digits.REQUIRED_ACCURACY


def test_inaccurate_model_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = half_trained()
    monkeypatch.setattr(train_digits, "train", lambda images, labels: network)
    with pytest.raises(SystemExit, match="expected more than 95%"):
        train_digits.main(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command_writes_model_and_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_digits.main(tmp_path / "out")
    assert "on 359 held-back digits" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["digits.npz", "digits.tflite"]
    with np.load(tmp_path / "out" / "digits.npz") as written:
        assert np.array_equal(written["images"], digits.load_images()[0])
