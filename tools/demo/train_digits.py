"""Trains the demo model, a small classifier of handwritten digits, and writes it as a float32 .tflite file.

Run as `python -m tools.demo.train_digits [--out DIR]`. The digits are those that scikit-learn bundles (1797
images of 8 x 8, values 0..16). About 20 % are held back: the network never sees them in training, its
accuracy is measured on them, and they are kept beside the model as what the demo shows. The network is plain
numpy: each layer is one TFLite operator, with tensors in TFLite's own layouts (images NHWC, filters OHWI), so
that the file holds them as they are. Its settings were chosen on folds of the digits that it is trained on.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

Floats = npt.NDArray[np.floating[Any]]
Bytes = npt.NDArray[np.uint8]

DEMO_FOLDER = Path(__file__).parent
IMAGE_SHAPE = (8, 8, 1)
CLASSES = 10
HIGHEST_PIXEL = 16
SEED = 2024
HELD_BACK_SHARE = 0.2
EPOCHS = 100
BATCH = 32
LEARNING_RATE = 4e-3
SHIFTED_SHARE = 0.5  # of the batches in training are moved by a pixel, so that position matters less
LEAST_ACCURACY = 0.95
LARGEST_DIFFERENCE = 1e-4  # between probabilities of numpy and of LiteRT: rounding of float32, nothing more


# --- layers -------------------------------------------------------------------------------------------------


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis under TFLite's SAME padding; an odd one goes after."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def im2col(images: Floats, kernel: int, stride: int) -> Floats:
    """Patches [N,OH,OW,kernel,kernel,C] of images [N,H,W,C], SAME padding."""
    rows, columns = (same_padding(size, kernel, stride) for size in images.shape[1:3])
    padded = np.pad(images, ((0, 0), rows, columns, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))
    return np.ascontiguousarray(windows[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3))


def col2im(patches: Floats, shape: Sequence[int], stride: int) -> Floats:
    """The adjoint of im2col: sums patches [N,OH,OW,kernel,kernel,C] back into images of `shape` [N,H,W,C]."""
    _, out_height, out_width, kernel = patches.shape[:4]
    (top, bottom), (left, right) = (same_padding(size, kernel, stride) for size in shape[1:3])
    images = np.zeros((shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3]), patches.dtype)
    for row in range(kernel):
        for column in range(kernel):
            rows = slice(row, row + stride * out_height, stride)
            columns = slice(column, column + stride * out_width, stride)
            images[:, rows, columns] += patches[:, :, :, row, column]
    return images[:, top : top + shape[1], left : left + shape[2]]


class Layer:
    """One operator of the network. `backward` follows the `forward` that it differentiates.

    `parameters` are changed in place by the optimiser; `backward` fills `gradients` under the same names.
    """

    def __init__(self, **parameters: Floats) -> None:
        self.parameters = parameters
        self.gradients: dict[str, Floats] = {}

    def forward(self, inputs: Floats) -> Floats:
        """Outputs for a batch of inputs [N, ...]."""
        raise NotImplementedError

    def backward(self, slope: Floats) -> Floats:
        """The loss's gradient by the inputs, given its gradient by the outputs."""
        raise NotImplementedError


class Conv(Layer):
    """CONV_2D with SAME padding, stride 1 and RELU: weights [out,kernel,kernel,in], bias [out]."""

    def forward(self, inputs: Floats) -> Floats:
        """Images [N,H,W,in] to [N,H,W,out]."""
        weights, bias = self.parameters["weights"], self.parameters["bias"]
        self._shape = inputs.shape
        self._patches = im2col(inputs, weights.shape[1], 1)
        columns = self._patches.reshape(*inputs.shape[:3], -1)
        self._outputs = np.maximum(columns @ weights.reshape(len(weights), -1).T + bias, 0)
        return self._outputs

    def backward(self, slope: Floats) -> Floats:
        """The gradient by the inputs, in their shape; fills the gradients of weights and bias."""
        weights = self.parameters["weights"]
        slope = (slope * (self._outputs > 0)).reshape(-1, len(weights))
        columns = self._patches.reshape(len(slope), -1)
        self.gradients = {"weights": (slope.T @ columns).reshape(weights.shape), "bias": slope.sum(0)}
        patches = slope @ weights.reshape(len(weights), -1)
        return col2im(patches.reshape(self._patches.shape), self._shape, 1)


class DepthwiseConv(Layer):
    """DEPTHWISE_CONV_2D with SAME padding, stride 2 and RELU: weights [1,kernel,kernel,C], bias [C]."""

    STRIDE = 2

    def forward(self, inputs: Floats) -> Floats:
        """Images [N,H,W,C] to [N,H/2,W/2,C], rounded up."""
        weights, bias = self.parameters["weights"], self.parameters["bias"]
        self._shape = inputs.shape
        self._patches = im2col(inputs, weights.shape[1], self.STRIDE)
        sums = np.einsum("nhwijc,ijc->nhwc", self._patches, weights[0])
        outputs: Floats = np.maximum(sums + bias, 0)
        self._outputs = outputs
        return outputs

    def backward(self, slope: Floats) -> Floats:
        """The gradient by the inputs, in their shape; fills the gradients of weights and bias."""
        weights = self.parameters["weights"]
        slope = slope * (self._outputs > 0)
        self.gradients = {
            "weights": np.einsum("nhwijc,nhwc->ijc", self._patches, slope)[np.newaxis],
            "bias": slope.sum((0, 1, 2)),
        }
        return col2im(slope[:, :, :, np.newaxis, np.newaxis] * weights[0], self._shape, self.STRIDE)


class AveragePool(Layer):
    """AVERAGE_POOL_2D of 2 x 2, stride 2, over images whose sides are even."""

    SIZE = 2

    def forward(self, inputs: Floats) -> Floats:
        """Images [N,H,W,C] to [N,H/2,W/2,C]."""
        count, height, width, channels = inputs.shape
        blocks = inputs.reshape(count, height // self.SIZE, self.SIZE, width // self.SIZE, self.SIZE, channels)
        means: Floats = blocks.mean((2, 4))
        return means

    def backward(self, slope: Floats) -> Floats:
        """The gradient by the inputs, in their shape."""
        return slope.repeat(self.SIZE, 1).repeat(self.SIZE, 2) / self.SIZE**2


class Flatten(Layer):
    """RESHAPE of [N, ...] to [N, features]."""

    def forward(self, inputs: Floats) -> Floats:
        """Values [N,...] to rows [N,features]."""
        self._shape = inputs.shape
        return inputs.reshape(len(inputs), -1)

    def backward(self, slope: Floats) -> Floats:
        """The gradient by the inputs, in their shape."""
        return slope.reshape(self._shape)


class FullyConnected(Layer):
    """FULLY_CONNECTED without activation: weights [out,in], bias [out]."""

    def forward(self, inputs: Floats) -> Floats:
        """Rows [N,in] to [N,out]."""
        self._inputs = inputs
        outputs: Floats = inputs @ self.parameters["weights"].T + self.parameters["bias"]
        return outputs

    def backward(self, slope: Floats) -> Floats:
        """The gradient by the inputs, in their shape; fills the gradients of weights and bias."""
        self.gradients = {"weights": slope.T @ self._inputs, "bias": slope.sum(0)}
        return slope @ self.parameters["weights"]


# --- the network --------------------------------------------------------------------------------------------


def softmax(logits: Floats) -> Floats:
    """Probabilities [N,classes] of logits [N,classes]."""
    exponentials: Floats = np.exp(logits - logits.max(1, keepdims=True))
    sums: Floats = exponentials.sum(1, keepdims=True)
    return exponentials / sums


class Network:
    """Layers in a row, then SOFTMAX: images [N,H,W,1] to probabilities [N,classes]."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)

    def probabilities(self, images: Floats) -> Floats:
        """Probabilities [N,classes] of images [N,H,W,1]."""
        values = images
        for layer in self.layers:
            values = layer.forward(values)
        return softmax(values)

    def learn(self, images: Floats, labels: Bytes) -> float:
        """The mean cross-entropy of a batch; leaves its gradients in the layers."""
        probabilities = self.probabilities(images)
        chosen = np.arange(len(labels)), labels
        slope = probabilities.copy()
        slope[chosen] -= 1
        slope /= len(labels)
        for layer in reversed(self.layers):
            slope = layer.backward(slope)
        return float(-np.log(probabilities[chosen]).mean())


def build_network(generator: np.random.Generator) -> Network:
    """The untrained demo network, float32: He's initial weights, zero biases."""

    def start(*shape: int, inputs: int) -> dict[str, Floats]:
        weights = generator.normal(0, np.sqrt(2 / inputs), shape).astype(np.float32)
        channels = shape[-1] if shape[0] == 1 else shape[0]
        return {"weights": weights, "bias": np.zeros(channels, np.float32)}

    return Network(
        (
            Conv(**start(32, 3, 3, 1, inputs=9)),
            DepthwiseConv(**start(1, 3, 3, 32, inputs=9)),
            Conv(**start(64, 1, 1, 32, inputs=32)),
            AveragePool(),
            Flatten(),
            FullyConnected(**start(CLASSES, 256, inputs=256)),
        )
    )


# --- training -----------------------------------------------------------------------------------------------


class Adam:
    """Adam (Kingma and Ba, 2015) over all parameters of a network, with the paper's constants."""

    MEAN_DECAY, SQUARE_DECAY, SMALLEST = 0.9, 0.999, 1e-8

    def __init__(self, network: Network) -> None:
        self._network = network
        self._means = [{n: np.zeros_like(p) for n, p in layer.parameters.items()} for layer in network.layers]
        self._squares = [{n: np.zeros_like(p) for n, p in layer.parameters.items()} for layer in network.layers]
        self._steps = 0

    def step(self, rate: float) -> None:
        """Moves every parameter against the gradient that `Network.learn` left, at this learning rate."""
        self._steps += 1
        mean_scale = 1 / (1 - self.MEAN_DECAY**self._steps)
        square_scale = 1 / (1 - self.SQUARE_DECAY**self._steps)
        for layer, means, squares in zip(self._network.layers, self._means, self._squares, strict=True):
            for name, gradient in layer.gradients.items():
                means[name] += (1 - self.MEAN_DECAY) * (gradient - means[name])
                squares[name] += (1 - self.SQUARE_DECAY) * (gradient**2 - squares[name])
                root = np.sqrt(squares[name] * square_scale) + self.SMALLEST
                layer.parameters[name] -= rate * mean_scale * means[name] / root


def scale_pixels(images: Bytes) -> npt.NDArray[np.float32]:
    """Images uint8 [N,8,8], values 0..16, as the model takes them: float32 [N,8,8,1], values 0..1."""
    return (images[..., np.newaxis] / HIGHEST_PIXEL).astype(np.float32)


def jitter(images: Floats, generator: np.random.Generator) -> Floats:
    """Images [N,8,8,1] moved together by -1, 0 or 1 pixel along each side; zeros come in at the border."""
    row, column = generator.integers(0, 3, 2)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return padded[:, row : row + images.shape[1], column : column + images.shape[2]]


def train(images: Bytes, labels: Bytes, epochs: int = EPOCHS) -> Network:
    """The demo network trained on images uint8 [N,8,8] with labels [N]; same inputs, same network."""
    generator = np.random.default_rng(SEED)
    network = build_network(generator)
    optimiser = Adam(network)
    inputs = scale_pixels(images)
    for epoch in range(epochs):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        order = generator.permutation(len(inputs))
        for batch in np.split(order, range(BATCH, len(order), BATCH)):
            shown = jitter(inputs[batch], generator) if generator.random() < SHIFTED_SHARE else inputs[batch]
            network.learn(shown, labels[batch])
            optimiser.step(rate)
    return network


def load_digits() -> tuple[Bytes, Bytes]:
    """scikit-learn's digits: images uint8 [1797,8,8], values 0..16, and labels uint8 [1797]."""
    from sklearn import datasets

    digits = datasets.load_digits()
    return digits.images.astype(np.uint8), digits.target.astype(np.uint8)


def split(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the digits to train on and of those held back; always the same for the same count."""
    order = np.random.default_rng(SEED).permutation(count)
    held_back = round(count * HELD_BACK_SHARE)
    return order[held_back:], order[:held_back]


def accuracy(probabilities: Floats, labels: Bytes) -> float:
    """The share of rows of probabilities [N,classes] whose largest value is at the label."""
    return float((probabilities.argmax(1) == labels).mean())


# --- the .tflite file ---------------------------------------------------------------------------------------

SCHEMA_VERSION = 3
FILE_IDENTIFIER = b"TFL3"
BUFFER_ALIGNMENT = 16  # bytes; `force_align` of Buffer.data in the schema
SAME, VALID, RELU = 0, 1, 1  # the schema's numbers of Padding and ActivationFunctionType


@dataclass(frozen=True)
class OperatorKind:
    """What all operators of one kind share: the schema's names, and the fields of the options table."""

    code: str
    options: str
    fields: dict[str, int | float]


OPERATOR_KINDS: dict[type[Layer], OperatorKind] = {
    Conv: OperatorKind(
        "CONV_2D",
        "Conv2DOptions",
        {"padding": SAME, "strideW": 1, "strideH": 1, "fusedActivationFunction": RELU},
    ),
    DepthwiseConv: OperatorKind(
        "DEPTHWISE_CONV_2D",
        "DepthwiseConv2DOptions",
        {
            "padding": SAME,
            "strideW": DepthwiseConv.STRIDE,
            "strideH": DepthwiseConv.STRIDE,
            "depthMultiplier": 1,
            "fusedActivationFunction": RELU,
        },
    ),
    AveragePool: OperatorKind(
        "AVERAGE_POOL_2D",
        "Pool2DOptions",
        {
            "padding": VALID,
            "strideW": AveragePool.SIZE,
            "strideH": AveragePool.SIZE,
            "filterWidth": AveragePool.SIZE,
            "filterHeight": AveragePool.SIZE,
        },
    ),
    Flatten: OperatorKind("RESHAPE", "ReshapeOptions", {}),
    FullyConnected: OperatorKind("FULLY_CONNECTED", "FullyConnectedOptions", {}),
}
SOFTMAX = OperatorKind("SOFTMAX", "SoftmaxOptions", {"beta": 1.0})


class TfliteModel:
    """A TFLite model that grows operator by operator; each reads the output of the one before it."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated

        self._schema = schema_py_generated
        self._buffers: list[Any] = [self._schema.BufferT()]  # 0 stays empty: tensors without data name it
        self._tensors: list[Any] = []
        self._codes: list[str] = []
        self._operators: list[Any] = []
        self._last = self._add_tensor("image", (1, *IMAGE_SHAPE), "FLOAT32")

    def add_operator(
        self, kind: OperatorKind, name: str, shape: Sequence[int], constants: dict[str, npt.NDArray[Any]]
    ) -> None:
        """Adds an operator: `name` and `shape` are its output's, `constants` its inputs after the first."""
        operator = self._schema.OperatorT()
        operator.opcodeIndex = self._code_index(kind.code)
        operator.inputs = [self._last, *(self._add_constant(f"{name}/{n}", c) for n, c in constants.items())]
        self._last = self._add_tensor(name, shape, "FLOAT32")
        operator.outputs = [self._last]
        operator.builtinOptionsType = getattr(self._schema.BuiltinOptions, kind.options)
        operator.builtinOptions = getattr(self._schema, f"{kind.options}T")()
        vars(operator.builtinOptions).update(kind.fields)
        self._operators.append(operator)

    def pack(self) -> bytes:
        """The model as a flatbuffer, its input the image, its output that of the last operator."""
        subgraph = self._schema.SubGraphT()
        subgraph.name = "main"
        subgraph.tensors, subgraph.operators = self._tensors, self._operators
        subgraph.inputs, subgraph.outputs = [0], [self._last]
        model = self._schema.ModelT()
        model.version = SCHEMA_VERSION
        model.description = "Classifier of handwritten digits, 8 x 8"
        model.operatorCodes = [self._operator_code(code) for code in self._codes]
        model.subgraphs, model.buffers = [subgraph], self._buffers
        return finish(model)

    def _add_tensor(self, name: str, shape: Sequence[int], element: str, buffer: int = 0) -> int:
        tensor = self._schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, list(shape), buffer
        tensor.type = getattr(self._schema.TensorType, element)
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def _add_constant(self, name: str, value: npt.NDArray[Any]) -> int:
        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(value.astype(value.dtype.newbyteorder("<")).tobytes(), np.uint8)
        self._buffers.append(buffer)
        return self._add_tensor(name, value.shape, value.dtype.name.upper(), len(self._buffers) - 1)

    def _code_index(self, code: str) -> int:
        if code not in self._codes:
            self._codes.append(code)
        return self._codes.index(code)

    def _operator_code(self, code: str) -> Any:
        # Older readers know the deprecated field only. Below 127 both hold the same number.
        operator_code = self._schema.OperatorCodeT()
        operator_code.builtinCode = getattr(self._schema.BuiltinOperator, code)
        operator_code.deprecatedBuiltinCode = operator_code.builtinCode
        return operator_code


def finish(model: Any) -> bytes:
    """The flatbuffer of a ModelT."""
    import flatbuffers

    class AlignedBuilder(flatbuffers.Builder):  # type: ignore[misc]
        """The object API leaves out `force_align`: align every vector as constants have to be."""

        def StartVector(self, size: int, count: int, alignment: int) -> Any:
            return super().StartVector(size, count, max(alignment, BUFFER_ALIGNMENT))

    builder = AlignedBuilder(1024)
    builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
    return bytes(builder.Output())


def to_tflite(network: Network) -> bytes:
    """The network as a .tflite file: "image" float32 [1,8,8,1] to "probabilities" float32 [1,classes]."""
    model = TfliteModel()
    values: Floats = np.zeros((1, *IMAGE_SHAPE), np.float32)
    for position, layer in enumerate(network.layers, 1):
        values = layer.forward(values)  # for its shape
        kind = OPERATOR_KINDS[type(layer)]
        constants: dict[str, npt.NDArray[Any]] = dict(layer.parameters)
        if isinstance(layer, Flatten):
            constants["shape"] = np.array(values.shape, np.int32)
        model.add_operator(kind, f"{kind.code.lower()}_{position}", values.shape, constants)
    model.add_operator(SOFTMAX, "probabilities", values.shape, {})
    return model.pack()


def run_tflite(model: Path, images: Bytes) -> npt.NDArray[np.float32]:
    """Probabilities [N,classes] that LiteRT gives for images uint8 [N,8,8], one at a time."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model), num_threads=1)
    interpreter.allocate_tensors()
    (image,), (probabilities,) = interpreter.get_input_details(), interpreter.get_output_details()
    rows = []
    for values in scale_pixels(images):
        interpreter.set_tensor(image["index"], values[np.newaxis])
        interpreter.invoke()
        rows.append(interpreter.get_tensor(probabilities["index"])[0])
    return np.stack(rows)


# --- the command --------------------------------------------------------------------------------------------


def main(
    out: Annotated[Path, typer.Option(help="Folder for digits.tflite and digits.npz.")] = DEMO_FOLDER,
) -> None:
    """Train the demo model, write it and the held-back digits, and measure it on them."""
    from threadpoolctl import threadpool_limits

    images, labels = load_digits()
    taught, held_back = split(len(images))
    started = time.perf_counter()
    with threadpool_limits(1):  # sums come out the same whatever the number of cores
        network = train(images[taught], labels[taught])
        expected = network.probabilities(scale_pixels(images[held_back]))
    seconds = time.perf_counter() - started
    share = accuracy(expected, labels[held_back])
    print(f"trained on {len(taught)} digits in {seconds:.1f} s")
    print(f"numpy:  {share:.2%} of {len(held_back)} held-back digits")
    if share <= LEAST_ACCURACY:
        raise SystemExit(f"accuracy {share:.2%} is not above {LEAST_ACCURACY:.0%}: nothing written")
    out.mkdir(parents=True, exist_ok=True)
    model = out / "digits.tflite"
    model.write_bytes(to_tflite(network))
    np.savez_compressed(out / "digits.npz", images=images[held_back], labels=labels[held_back])
    check_written(model, images[held_back], labels[held_back], expected)


def check_written(model: Path, images: Bytes, labels: Bytes, expected: Floats) -> None:
    """Prints the file's accuracy under LiteRT; ends the program where LiteRT and numpy do not agree."""
    measured = run_tflite(model, images)
    share, difference = accuracy(measured, labels), np.abs(measured - expected).max()
    print(f"LiteRT: {share:.2%}, largest difference of a probability {difference:.1e}")
    if share != accuracy(expected, labels) or difference > LARGEST_DIFFERENCE:
        raise SystemExit(f"{model}: LiteRT and numpy do not agree")


if __name__ == "__main__":
    typer.run(main)
