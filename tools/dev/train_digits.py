"""Trains the model of `nnhal demo` with scikit-learn, and writes it and the digits that the demo shows.

`python -m tools.dev.train_digits [FOLDER]` trains on 80 % of scikit-learn's digits (1,797 images of 8 x 8). The others
are the ones that the demo shows. The model is written with LiteRT's schema classes, and checked with LiteRT.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from nnhal.types import AnyArray, Bytes
from nnhal_tools.demo.digits import FOLDER, REQUIRED_ACCURACY, scale_pixels

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier  # takes a second

HIDDEN_UNITS = (64, 32)
SEED = 2024
HELD_BACK_SHARE = 0.2
BUFFER_ALIGNMENT = 16
"""Bytes: `force_align` of Buffer.data in the schema."""


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
    model = schema.ModelT()
    model.version, model.description = 3, "Classifier of handwritten digits, 8 x 8"
    model.buffers = [schema.BufferT()]  # buffer 0 is empty: tensors without data refer to it
    model.operatorCodes, graph = [], schema.SubGraphT()
    model.subgraphs = [graph]
    graph.name, graph.tensors, graph.operators = "main", [], []

    def add_tensor(name: str, shape: Sequence[int], data: AnyArray | None = None) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, list(shape), 0
        tensor.type = schema.TensorType.FLOAT32 if data is None or data.dtype.kind == "f" else schema.TensorType.INT32
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def add_operator(kind: str, options: Any, name: str, shape: Sequence[int], constants: dict[str, AnyArray]) -> None:
        code = getattr(schema.BuiltinOperator, kind)
        codes = [each.builtinCode for each in model.operatorCodes]
        operator = schema.OperatorT()
        operator.opcodeIndex = codes.index(code) if code in codes else len(codes)
        if code not in codes:
            operator_code = schema.OperatorCodeT()
            operator_code.builtinCode = operator_code.deprecatedBuiltinCode = code
            model.operatorCodes.append(operator_code)
        previous = graph.operators[-1].outputs[0] if graph.operators else graph.inputs[0]
        operator.inputs = [previous, *(add_tensor(f"{name}/{n}", c.shape, c) for n, c in constants.items())]
        operator.outputs = [add_tensor(name, shape)]
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        operator.builtinOptions = options
        graph.operators.append(operator)

    graph.inputs = [add_tensor("image", (1, 8, 8, 1))]
    flat = (1, network.n_features_in_)
    add_operator("RESHAPE", schema.ReshapeOptionsT(), "flat", flat, {"shape": np.array(flat, np.int32)})
    for number, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True), 1):
        options = schema.FullyConnectedOptionsT()
        if number < len(network.coefs_):
            options.fusedActivationFunction = schema.ActivationFunctionType.RELU
        constants = {"weights": weights.T.astype(np.float32), "bias": bias.astype(np.float32)}
        add_operator("FULLY_CONNECTED", options, f"layer_{number}", (1, len(bias)), constants)
    softmax = schema.SoftmaxOptionsT()
    softmax.beta = 1.0
    add_operator("SOFTMAX", softmax, "probabilities", (1, network.n_outputs_), {})
    graph.outputs = graph.operators[-1].outputs
    return pack(model)


def pack(model: Any) -> bytes:
    """Return a ModelT as a flatbuffer. Every vector is aligned as constants must be, which the object API omits."""

    class AlignedBuilder(flatbuffers.Builder):  # type: ignore[misc]
        def StartVector(self, size: int, count: int, alignment: int) -> Any:
            return super().StartVector(size, count, max(alignment, BUFFER_ALIGNMENT))

    builder = AlignedBuilder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


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
