"""The demo model: the numpy network's gradients, the file that is written, and the files that are committed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.demo import train_digits as demo

MODEL = demo.DEMO_FOLDER / "digits.tflite"
DIGITS = demo.DEMO_FOLDER / "digits.npz"
OPERATORS = {"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX"}


def drawn(generator: np.random.Generator, weights: tuple[int, ...], bias: int) -> dict[str, demo.Floats]:
    return {"weights": generator.normal(size=weights), "bias": generator.normal(size=bias)}


def tiny_network(generator: np.random.Generator) -> demo.Network:
    """Every kind of layer in float64, for images of 8 x 7: SAME padding uneven on one side, even on the other."""
    return demo.Network(
        [
            demo.Conv(**drawn(generator, (2, 3, 3, 1), 2)),
            demo.Conv(**drawn(generator, (2, 3, 3, 2), 2)),
            demo.DepthwiseConv(**drawn(generator, (1, 3, 3, 2), 2)),
            demo.AveragePool(),
            demo.Flatten(),
            demo.FullyConnected(**drawn(generator, (4, 8), 4)),
        ]
    )


def differences(network: demo.Network, images: demo.Floats, labels: demo.Bytes, at: demo.Floats) -> demo.Floats:
    """The loss's gradient by `at`, an array that the network reads, from central differences."""
    step, slopes = 1e-6, np.zeros_like(at)
    for index in np.ndindex(at.shape):
        kept = at[index]
        at[index] = kept + step
        above = network.learn(images, labels)
        at[index] = kept - step
        below = network.learn(images, labels)
        at[index] = kept
        slopes[index] = (above - below) / (2 * step)
    return slopes


def test_gradients_of_every_layer_agree_with_finite_differences() -> None:
    generator = np.random.default_rng(5)
    network = tiny_network(generator)
    images, labels = generator.normal(size=(3, 8, 7, 1)), np.array([0, 3, 1], np.uint8)
    network.learn(images, labels)
    gradients = [dict(layer.gradients) for layer in network.layers]
    assert sum(map(len, gradients)) == 8
    for layer, named in zip(network.layers, gradients, strict=True):
        for name, gradient in named.items():
            expected = differences(network, images, labels, layer.parameters[name])
            assert np.abs(expected).max() > 1e-3, "a gradient of zeros shows nothing"
            np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8, err_msg=f"{layer} {name}")


def test_training_is_reproducible_and_learns() -> None:
    images, labels = committed_digits()
    networks = [demo.train(images, labels, epochs=3) for _ in range(2)]
    first, second = (network.layers[0].parameters["weights"].tobytes() for network in networks)
    assert first == second
    assert demo.accuracy(networks[0].probabilities(demo.scale_pixels(images)), labels) > 0.5


def test_split_holds_back_a_fifth_and_shares_nothing() -> None:
    taught, held_back = demo.split(1797)
    assert len(held_back) == 359
    assert sorted([*taught, *held_back]) == list(range(1797))
    assert np.array_equal(held_back, demo.split(1797)[1])


def committed_digits() -> tuple[demo.Bytes, demo.Bytes]:
    with np.load(DIGITS, allow_pickle=False) as digits:
        return digits["images"], digits["labels"]


def test_committed_digits_are_the_held_back_ones() -> None:
    pytest.importorskip("sklearn")
    images, labels = demo.load_digits()
    _, held_back = demo.split(len(images))
    shown, answers = committed_digits()
    assert shown.dtype == answers.dtype == np.uint8
    assert np.array_equal(shown, images[held_back])
    assert np.array_equal(answers, labels[held_back])


def read_model(data: bytes) -> Any:
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    return schema.ModelT.InitFromPackedBuf(bytearray(data))


def constant_offsets(data: bytes) -> list[int]:
    """Where in the file each constant starts."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    model = schema.Model.GetRootAs(data)
    vectors = (model.Buffers(i)._tab for i in range(1, model.BuffersLength()))
    return [table.Vector(table.Offset(4)) for table in vectors]


@pytest.fixture(params=["committed", "just written"])
def data(request: pytest.FixtureRequest) -> bytes:
    if request.param == "committed":
        return MODEL.read_bytes()
    pytest.importorskip("ai_edge_litert", reason="needs LiteRT's schema to write a model")
    return demo.to_tflite(demo.build_network(np.random.default_rng(3)))


def test_model_is_well_formed_and_small(data: bytes) -> None:
    assert data[4:8] == b"TFL3"
    assert len(data) < 100_000
    model = read_model(data)
    assert model.version == 3
    assert len(model.subgraphs) == 1
    assert model.buffers[0].data is None
    assert all(code.builtinCode == code.deprecatedBuiltinCode for code in model.operatorCodes)
    (graph,) = model.subgraphs
    names = [tensor.name.decode() for tensor in graph.tensors]
    assert [names[i] for i in graph.inputs] == ["image"]
    assert [names[i] for i in graph.outputs] == ["probabilities"]
    assert len(set(names)) == len(names)
    assert all(offset % 16 == 0 for offset in constant_offsets(data))


def test_model_uses_the_promised_operators_only(data: bytes) -> None:
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    model = read_model(data)
    assert {code.builtinCode for code in model.operatorCodes} == {
        getattr(schema.BuiltinOperator, name) for name in OPERATORS
    }


def test_written_model_computes_what_numpy_computes(tmp_path: Path) -> None:
    """Random weights and biases: a trained network could hide a wrong stride or padding behind a good accuracy."""
    pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT to run the model")
    generator = np.random.default_rng(7)
    network = demo.build_network(generator)
    for layer in network.layers:
        if "bias" in layer.parameters:
            layer.parameters["bias"][:] = generator.normal(size=layer.parameters["bias"].shape)
    model = tmp_path / "random.tflite"
    model.write_bytes(demo.to_tflite(network))
    images = generator.integers(0, 17, (5, 8, 8), np.uint8)
    expected = network.probabilities(demo.scale_pixels(images))
    np.testing.assert_allclose(demo.run_tflite(model, images), expected, atol=1e-5)


def test_committed_model_recognises_the_committed_digits() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT to run the model")
    images, labels = committed_digits()
    assert demo.accuracy(demo.run_tflite(MODEL, images), labels) > demo.LEAST_ACCURACY


def test_check_written_refuses_a_file_that_disagrees() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT to run the model")
    images, labels = committed_digits()
    expected = demo.run_tflite(MODEL, images)
    demo.check_written(MODEL, images, labels, expected)
    for wrong in (expected[:, ::-1], expected + np.float32(1e-3)):  # other answers; the same, less exactly
        with pytest.raises(SystemExit, match="do not agree"):
            demo.check_written(MODEL, images, labels, wrong)
