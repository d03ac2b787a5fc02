"""Small models for the commands, as files."""

from pathlib import Path

from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.nnhal.tflite.metadata_file import AXIS_LABELS, IMAGE, TensorDescription, with_metadata


def write_mask_model(folder: Path) -> Path:
    """Write a model whose mask is the largest channel of each pixel. Its metadata has a normalization and a label."""
    mask = Op(
        "REDUCE_MAX",
        [Tensor((1, 4, 4, 3), name="image"), ints(3)],
        [Tensor((1, 4, 4, 1), name="mask")],
        options("Reducer", keepDims=True),
    )
    inputs = [TensorDescription("image", IMAGE, mean=[0.0], std=[510.0])]
    outputs = [TensorDescription("mask", files={"labels.txt": AXIS_LABELS})]
    path = folder / "mask.tflite"
    path.write_bytes(with_metadata(build(mask), inputs, outputs, {"labels.txt": "snow\n"}))
    return path


def write_counter(folder: Path) -> Path:
    """Write a model that adds its input to a variable, and returns the sum."""
    handle, initial = Tensor((), "RESOURCE", name="sum"), Tensor((1, 2), name="before")
    step, total = Tensor((1, 2), name="step"), Tensor((1, 2), name="total")
    file = build(
        Op("VAR_HANDLE", [], [handle], options("VarHandle", sharedName="sum")),
        Op("READ_VARIABLE", [handle], [initial], options("ReadVariable")),
        Op("ADD", [initial, step], [total], options("Add")),
        Op("ASSIGN_VARIABLE", [handle, total], [], options("AssignVariable")),
        inputs=[step],
        outputs=[total],
    )
    (folder / "counter.tflite").write_bytes(file)
    return folder / "counter.tflite"
