"""Programs that convert a small model, as docs/converting.md shows it. Each writes the files of `Program`."""

import textwrap
from typing import NamedTuple


class Program(NamedTuple):
    """Program that writes model.tflite, input.npy with an input, and expected.npy with the framework's output."""

    packages: tuple[str, ...]
    code: str


def _program(packages: str, code: str) -> Program:
    return Program(tuple(packages.split()), textwrap.dedent(code))


PROGRAMS = {
    "keras": _program(
        "tensorflow-cpu",
        """
        import numpy as np
        import tensorflow as tf

        tf.random.set_seed(1)
        inputs = tf.keras.Input((8, 8, 3), batch_size=1)
        x = tf.keras.layers.Conv2D(4, 3, activation="relu")(inputs)
        x = tf.keras.layers.GlobalAveragePooling2D()(x)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(5, activation="softmax")(x))
        model.save("model.keras")
        model = tf.keras.models.load_model("model.keras")
        with open("model.tflite", "wb") as file:
            file.write(tf.lite.TFLiteConverter.from_keras_model(model).convert())
        image = np.random.default_rng(0).random((1, 8, 8, 3), np.float32)
        np.save("input.npy", image)
        np.save("expected.npy", model(image).numpy())
        """,
    ),
    "saved model": _program(
        "tensorflow-cpu",
        """
        import numpy as np
        import tensorflow as tf

        class Scale(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
            def __call__(self, x):
                return tf.nn.softmax(2.0 * x)

        tf.saved_model.save(Scale(), "saved")
        with open("model.tflite", "wb") as file:
            file.write(tf.lite.TFLiteConverter.from_saved_model("saved").convert())
        x = np.array([[1, 2, 3, 4]], np.float32)
        np.save("input.npy", x)
        np.save("expected.npy", Scale()(x).numpy())
        """,
    ),
    "jax": _program(
        "tensorflow-cpu jax",
        """
        import jax
        import jax.numpy as jnp
        import numpy as np
        import tensorflow as tf
        from jax.experimental import jax2tf

        weights = jax.random.normal(jax.random.PRNGKey(0), (4, 3))

        def predict(x):
            return jax.nn.softmax(jnp.tanh(x @ weights))

        spec = tf.TensorSpec((1, 4), tf.float32)
        function = tf.function(jax2tf.convert(predict), input_signature=[spec], autograph=False)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
        with open("model.tflite", "wb") as file:
            file.write(converter.convert())
        x = np.array([[1, -2, 3, 0.5]], np.float32)
        np.save("input.npy", x)
        np.save("expected.npy", np.asarray(predict(x)))
        """,
    ),
    "pytorch": _program(
        "litert-torch",
        """
        import litert_torch
        import numpy as np
        import torch

        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 5),
        ).eval()
        image = torch.rand(1, 3, 8, 8)
        litert_torch.convert(model, (image,)).export("model.tflite")
        np.save("input.npy", image.numpy())
        np.save("expected.npy", model(image).detach().numpy())
        """,
    ),
    "onnx": _program(
        "tensorflow-cpu tf-keras onnx onnx2tf onnxruntime onnx-graphsurgeon sng4onnx psutil ai-edge-litert",
        """
        import subprocess
        import sys
        from pathlib import Path

        import numpy as np
        import onnx
        from onnx import helper, numpy_helper

        weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=1)]
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4))
        y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3))
        graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "model.onnx")
        subprocess.run([sys.executable, "-m", "onnx2tf", "-i", "model.onnx", "-o", "converted"], check=True)
        next(Path("converted").glob("*_float32.tflite")).rename("model.tflite")
        x = np.array([[1, -2, 3, 0.5]], np.float32)
        h = np.exp(x @ weights)
        np.save("input.npy", x)
        np.save("expected.npy", h / h.sum())
        """,
    ),
}
"""The programs by format."""
