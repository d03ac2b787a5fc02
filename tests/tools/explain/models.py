"""An explanation whose operations run on two backends and on none, and models with operators of all outcomes."""

from pathlib import Path

import numpy as np

from nnhal import tflite
from nnhal.types import Model, OperationPlacement, Partition, Placement, Refusal
from nnhal_tools.explain.explanation import Explanation, build_explanation
from nnhal_tools.explain.imported import describe_import
from nnhal_tools.explain.model_explanation import ModelExplanation
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

HOSTILE = "</script><script>document.title='broken'</script><b>"


def explain(model: Model) -> Explanation:
    """Place operation 1 on CpuRef, the last one nowhere, and all others on CpuAcc."""
    last = len(model.main.operations) - 1
    refusals = {1: (Refusal("CpuAcc", HOSTILE, "rank 4"),), last: (Refusal("CpuAcc", "no"), Refusal("CpuRef", "never"))}
    backends = {1: "CpuRef", last: ""}
    operations = tuple(
        OperationPlacement(0, i, operation.type, backends.get(i, "CpuAcc"), refusals.get(i, ()))
        for i, operation in enumerate(model.main.operations)
    )
    partitions = (
        Partition(0, "CpuAcc", (0,)),
        Partition(0, "CpuRef", (1,)),
        Partition(0, "CpuAcc", tuple(range(2, last))),
    )
    return build_explanation(model, Placement(partitions, operations))


def explain_file(path: Path) -> ModelExplanation:
    """Explain a file with this placement."""
    model = tflite.load(path)
    return ModelExplanation(describe_import(tflite.inspect(path), model), explain(model))


def varied_file(folder: Path) -> Path:
    """Write a file with operators that are direct, composed, folded, unread and in the extension."""
    image = Tensor((1, 4, 4, 1), "INT8", scale=(0.5,), zero_point=(3,), name="image")
    half, filter_, bias = Tensor((1, 3, 3, 1), "FLOAT16", np.ones(9)), Tensor((1, 3, 3, 1)), Tensor((1,), data=[0])
    real, features, ends = Tensor((1, 4, 4, 1)), Tensor((1, 4, 4, 1)), Tensor((1, 4, 4, 1), name="signs")
    unread, sums, total = Tensor((1, 4, 4, 1)), Tensor((1, 4, 4, 1)), Tensor((1, 4, 4, 1), name=HOSTILE)
    convolution = options("Conv2D", strideW=1, strideH=1, fusedActivationFunction=1)
    operators = [
        Op("DEQUANTIZE", [half], [filter_]),
        Op("DEQUANTIZE", [image], [real]),
        Op("CONV_2D", [real, filter_, bias], [features], convolution),
        Op("NEG", [features], [unread]),
        Op("CEIL", [features], [ends]),
        Op("CUMSUM", [ends, ints(1)], [sums], options("Cumsum")),
        Op("ADD", [sums, features], [total], options("Add")),
    ]
    path = folder / "varied.tflite"
    path.write_bytes(build(*operators, outputs=[total]))
    return path


def refused_file(folder: Path) -> Path:
    """Write a file with two operators that are refused, and a direct one between them."""
    first, second, third, last = (Tensor((2, 3)) for _ in range(4))
    operators = [
        Op("CUSTOM", [first], [second], custom="Mystery"),
        Op("NEG", [second], [third]),
        Op("CUSTOM", [third], [last], custom=HOSTILE),
    ]
    path = folder / "refused.tflite"
    path.write_bytes(build(*operators))
    return path
