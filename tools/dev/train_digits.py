"""Trains the model of `nnhal demo` with scikit-learn, and writes it and the digits that the demo shows.

`python -m tools.dev.train_digits [FOLDER]` trains on 80 % of scikit-learn's digits (1,797 images of 8 x 8). The others
are the ones that the demo shows. The model is written as those of the tests are, and checked with LiteRT.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from nnhal.types import Bytes
from nnhal_tools.demo.digits import FOLDER, REQUIRED_ACCURACY, scale_pixels
from tests.nnhal.tflite.build import Op, Tensor, build, options, pack, unpack

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier  # takes a second

HIDDEN_UNITS = (64, 32)
SEED = 2024
HELD_BACK_SHARE = 0.2


def load_digits() -> tuple[Bytes, Bytes]:
    """Return scikit-learn's digits: images uint8 [1797,8,8] with values 0..16, and labels uint8 [1797]."""
    from sklearn import datasets

    digits = datasets.load_digits()
    return digits.images.astype(np.uint8), digits.target.astype(np.uint8)


def split(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the indices of the digits to train on and of those held back, the same for the same count."""
    order = np.random.default_rng(SEED).permutation(count)
    held_back = round(count * HELD_BACK_SHARE)
    return order[held_back:], order[:held_back]


def train(images: Bytes, labels: Bytes, **settings: Any) -> "MLPClassifier":
    """Train a network on images uint8 [N,8,8] and their labels [N]. The same input gives the same network."""
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier(HIDDEN_UNITS, alpha=1e-3, max_iter=400, random_state=SEED)
    network.set_params(**settings)
    return network.fit(scale_pixels(images).reshape(len(images), -1), labels)


def to_tflite(network: "MLPClassifier") -> bytes:
    """Return a trained network as a .tflite file: RESHAPE, a FULLY_CONNECTED per layer with RELU between, SOFTMAX."""
    shape = (1, network.n_features_in_)
    value = Tensor(shape, name="flat")
    constant = Tensor((2,), "INT32", shape, name="flat/shape")
    operators = [Op("RESHAPE", [Tensor((1, 8, 8, 1), name="image"), constant], [value], options("Reshape"))]
    for number, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True), 1):
        name, activation = f"layer_{number}", "RELU" if number < len(network.coefs_) else "NONE"
        constants = [
            Tensor(weights.T.shape, data=weights.T, name=f"{name}/weights"),
            Tensor(bias.shape, data=bias, name=f"{name}/bias"),
        ]
        fused = options("FullyConnected", fusedActivationFunction=getattr(schema.ActivationFunctionType, activation))
        result = Tensor((1, len(bias)), name=name)
        operators.append(Op("FULLY_CONNECTED", [value, *constants], [result], fused))
        value = result
    probabilities = Tensor((1, network.n_outputs_), name="probabilities")
    operators.append(Op("SOFTMAX", [value], [probabilities], options("Softmax", beta=1.0)))
    model = build(*operators, description="Classifier of handwritten digits, 8 x 8")
    return pack(unpack(model), aligned=True)


def run_tflite(model: bytes, images: Bytes) -> npt.NDArray[np.float32]:
    """Return the probabilities [N,10] that LiteRT computes for images uint8 [N,8,8], one at a time."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    (image,), (probabilities,) = interpreter.get_input_details(), interpreter.get_output_details()
    rows = []
    for values in scale_pixels(images):
        interpreter.set_tensor(image["index"], values[np.newaxis])
        interpreter.invoke()
        rows.append(interpreter.get_tensor(probabilities["index"])[0])
    return np.stack(rows)


def main(folder: Path = FOLDER) -> None:
    """Train the model, check it on the held-back digits, and write both to a folder."""
    images, labels = load_digits()
    training, held_back = split(len(images))
    model = to_tflite(train(images[training], labels[training]))
    accuracy = float((run_tflite(model, images[held_back]).argmax(1) == labels[held_back]).mean())
    print(f"accuracy {accuracy:.2%} on {len(held_back)} held-back digits")
    if accuracy <= REQUIRED_ACCURACY:
        raise SystemExit(
            f"the accuracy is {accuracy:.2%}; expected more than {REQUIRED_ACCURACY:.0%}. Nothing written."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.tflite").write_bytes(model)
    np.savez_compressed(folder / "digits.npz", images=images[held_back], labels=labels[held_back])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
