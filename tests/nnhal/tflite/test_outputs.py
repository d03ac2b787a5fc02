"""Outputs of a file that NNAPI forbids: inputs, constants, and tensors that are outputs twice."""

import pytest

from nnhal import tflite
from tests.nnhal.tflite.build import Op, Tensor, build, listing

A = Tensor((2,), name="a")
B = Tensor((2,), name="b")
CONSTANT = Tensor((2,), data=[1, 2], name="c")


@pytest.mark.parametrize(
    "outputs, operations",
    [
        ([B, A], ["EXP in0 -> out0", "RESHAPE in0 [2] -> out1"]),
        ([B, CONSTANT], ["EXP in0 -> out0", "RESHAPE const [2] -> out1"]),
        ([B, B], ["EXP in0 -> out0", "RESHAPE out0 [2] -> out1"]),
    ],
    ids=["input", "constant", "twice"],
)
def test_output_is_copied(outputs: list[Tensor], operations: list[str]) -> None:
    model = tflite.parse(build(Op("EXP", [A], [B]), inputs=[A], outputs=outputs))
    assert listing(model) == operations
    assert model.output_names == tuple(tensor.name for tensor in outputs)
