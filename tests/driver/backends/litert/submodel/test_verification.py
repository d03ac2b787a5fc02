"""Verification of tensors, quantization, data flow and limits."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel import SubModelLimits
from tests.driver.backends.litert.submodel.checking import changed, check, exp, quantized, refusal, set_field
from tests.nnhal.tflite.build import Op, Tensor, build, options, schema


def add(first: Tensor, second: Tensor, **more: Any) -> bytes:
    return build(Op("ADD", [first, second], [more.pop("result", None) or Tensor((2,))], options("Add", **more)))


def chain() -> bytes:
    middle = Tensor((2,))
    return build(Op("EXP", [Tensor((2,))], [middle]), Op("LOG", [middle], [Tensor((2,))]))


# ---- Tensors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[2, 0], [0], [2, -1], [-(2**31)]])
def test_dimension_below_1_is_refused(shape: list[int]) -> None:
    message = refusal(changed(exp(), set_field("subgraphs.0.tensors.0.shape", shape)))
    assert message == f"tensor 0: shape is {shape}; every dimension must be known and at least 1"


def test_rank_above_8_is_refused() -> None:
    assert "has 9 dimensions" in refusal(changed(exp(), set_field("subgraphs.0.tensors.0.shape", [1] * 9)))


@pytest.mark.parametrize("shape", [[2**31 - 1], [2**16, 2**16], [2**31 - 1] * 8])
def test_size_does_not_overflow(shape: list[int]) -> None:
    message = refusal(changed(exp(), set_field("subgraphs.0.tensors.0.shape", shape)))
    assert message.startswith(f"tensor 0: shape {shape} takes {np.prod([4, *shape], dtype=object)} bytes; at most")


@pytest.mark.parametrize("length", [0, 4, 7, 9, 12])
def test_length_of_a_constant_must_match(length: int) -> None:
    data = add(Tensor((2,)), Tensor((2,), data=[1, 2]))
    if length:
        changed_ = changed(data, lambda model: setattr(model.buffers[1], "data", [0] * length))
        assert refusal(changed_) == f"tensor 1: buffer has {length} bytes; shape [2] takes 8"
    else:
        emptied = changed(data, set_field("buffers.1.data", []))
        assert refusal(emptied) == "operator 0 (ADD): input 1: tensor 1 is read, but has no value yet"


def test_half_a_byte_counts() -> None:
    """Two INT4 values share a byte."""
    data = add(Tensor((3,)), Tensor((3,), data=[1, 2, 3]), result=Tensor((3,)))
    data = changed(data, set_field("subgraphs.0.tensors.1.type", schema.TensorType.INT4))
    assert refusal(data) == "tensor 1: buffer has 12 bytes; shape [3] takes 2"


def test_boolean_constant_is_0_or_1() -> None:
    op = Op("LOGICAL_AND", [Tensor((2,), "BOOL"), Tensor((2,), "BOOL", [True, False])], [Tensor((2,), "BOOL")])
    check(build(op))
    assert "a Boolean of 2; expected 0 or 1" in refusal(changed(build(op), set_field("buffers.1.data", [2, 0])))


def test_constant_is_not_a_variable() -> None:
    data = changed(add(Tensor((2,)), Tensor((2,), data=[1, 2])), set_field("subgraphs.0.tensors.1.isVariable", True))
    assert "is_variable is set" in refusal(data)


# ---- Quantization ---------------------------------------------------------------------------------------


def relu(**more: Any) -> bytes:
    tensor = Tensor((2, 3), **{"type": "INT8", "scale": (0.5,), "zero_point": (0,), **more})
    return build(Op("RELU", [tensor], [quantized((2, 3))]))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"scale": (0.0,)}, "tensor 0: scale is 0.0; expected"),
        ({"scale": (-1.0,)}, "tensor 0: scale is -1.0; expected"),
        ({"scale": (float("nan"),)}, "tensor 0: scale is nan; expected"),
        ({"scale": (float("inf"),)}, "tensor 0: scale is inf; expected"),
        ({"scale": (1e-30,)}, "tensor 0: scale is 1e-30; expected"),
        ({"scale": (1e30,)}, "tensor 0: scale is 1e+30; expected"),
        ({"zero_point": (128,)}, "tensor 0: zero_point is 128; expected -128 to 127 for INT8"),
        ({"zero_point": (-(2**63),)}, "tensor 0: zero_point is -9223372036854775808; expected"),
        ({"type": "UINT8", "zero_point": (-1,)}, "tensor 0: zero_point is -1; expected 0 to 255 for UINT8"),
        ({"type": "INT32", "zero_point": (1,)}, "tensor 0: zero_point is 1; expected 0 to 0 for INT32"),
        ({"zero_point": (0, 0)}, "tensor 0: zero_point has 2 elements; expected 1 as scale has"),
        ({"zero_point": ()}, "tensor 0: zero_point has 0 elements; expected 1 as scale has"),
        ({"scale": (1, 2), "zero_point": (0, 0), "dimension": 1}, "tensor 0: scale has 2 elements; expected 1, or"),
        ({"dimension": 2}, "tensor 0: quantized_dimension is 2; the tensor has rank 2"),
        ({"dimension": -1}, "tensor 0: quantized_dimension is -1; the tensor has rank 2"),
        ({"type": "UINT32"}, "tensor 0: type UINT32 cannot be quantized"),
        ({"scale": ()}, "operator 0 (RELU): input 0 has type INT8 but no scale"),
        ({"scale": (1, 2), "zero_point": (0, 0)}, "operator 0 (RELU): input 0 has 2 scales; expected 1"),
    ],
)
def test_invalid_quantization_is_refused(more: dict[str, Any], message: str) -> None:
    assert refusal(relu(**more)).startswith(message)


# ---- Data flow ------------------------------------------------------------------------------------------


def _swap(model: Any) -> None:
    model.subgraphs[0].operators.reverse()


def _twice(model: Any) -> None:
    model.subgraphs[0].operators.append(model.subgraphs[0].operators[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_field("subgraphs.0.inputs", [3]), "subgraph 0: inputs refers to tensor 3; there are 3"),
        (set_field("subgraphs.0.inputs", [-1]), "subgraph 0: inputs refers to tensor -1; there are 3"),
        (set_field("subgraphs.0.inputs", [0, 0]), "subgraph 0: inputs has a tensor twice"),
        (set_field("subgraphs.0.inputs", []), "operator 0 (EXP): input 0: tensor 0 is read, but has no value yet"),
        (set_field("subgraphs.0.inputs", [0, 1]), "operator 0 (EXP): tensor 1 is written, but has a value already"),
        (set_field("subgraphs.0.outputs", [3]), "subgraph 0: outputs refers to tensor 3; there are 3"),
        (set_field("subgraphs.0.outputs", [0]), "subgraph 0: outputs: no operator writes tensor 0"),
        (set_field("subgraphs.0.operators.0.inputs", [3]), "operator 0 (EXP): inputs refers to tensor 3"),
        (set_field("subgraphs.0.operators.0.inputs", [-2]), "operator 0 (EXP): inputs refers to tensor -2"),
        (set_field("subgraphs.0.operators.0.inputs", [1]), "operator 0 (EXP): input 0: tensor 1 is read, but"),
        (set_field("subgraphs.0.operators.0.outputs", [-1]), "operator 0 (EXP): outputs refers to tensor -1"),
        (set_field("subgraphs.0.operators.0.outputs", [0]), "operator 0 (EXP): tensor 0 is written, but"),
        (set_field("subgraphs.0.operators.0.outputs", [1, 1]), "operator 0 (EXP): tensor 1 is written, but"),
        (set_field("subgraphs.0.operators.0.outputs", []), "operator 1 (LOG): input 0: tensor 1 is read, but"),
        (set_field("subgraphs.0.operators.1.outputs", []), "subgraph 0: outputs: no operator writes tensor 2"),
        (set_field("subgraphs.0.operators.1.inputs", []), "operator 1 (LOG): inputs has 0 tensors; expected 1 to 1"),
        (set_field("subgraphs.0.operators.1.inputs", [-1]), "operator 1 (LOG): types (None)"),
        (set_field("subgraphs.0.operators.1.inputs", [1, 1]), "operator 1 (LOG): inputs has 2 tensors"),
        (set_field("subgraphs.0.operators", []), "subgraph 0: there is no operator"),
        (set_field("subgraphs.0.operators.1.intermediates", [0]), "operator 1 (LOG): intermediates has 1 tensors"),
        (
            set_field("subgraphs.0.tensors.0.isVariable", True),
            "subgraph 0: inputs: tensor 0 is a constant or a variable",
        ),
        (set_field("subgraphs.0.tensors.1.isVariable", True), "operator 0 (EXP): tensor 1 is written, but"),
        (set_field("operatorCodes.0.builtinCode", 103), "operator 0 (UNIQUE): is not supported in a sub-model"),
        (_swap, "operator 0 (LOG): input 0: tensor 1 is read, but has no value yet"),
        (_twice, "operator 2 (LOG): tensor 2 is written, but has a value already"),
    ],
)
def test_invalid_data_flow_is_refused(change: Callable[[Any], None], message: str) -> None:
    check(chain())
    assert refusal(changed(chain(), change)).startswith(message)


def test_constants_are_not_written() -> None:
    constant = Tensor((2,), data=[1, 2])
    written = build(
        Op("EXP", [Tensor((2,))], [constant]), Op("ADD", [constant, constant], [Tensor((2,))], options("Add"))
    )
    assert "tensor 1 is written, but has a value already" in refusal(written)


def test_types_of_operators() -> None:
    wrong = build(Op("ADD", [Tensor((2,)), Tensor((2,), "INT32")], [Tensor((2,))], options("Add")))
    assert refusal(wrong) == "operator 0 (ADD): types (FLOAT32, INT32) -> (FLOAT32) are not supported"


def test_options_belong_to_the_operator() -> None:
    wrong = build(Op("ADD", [Tensor((2,)), Tensor((2,))], [Tensor((2,))], options("Mul")))
    assert refusal(wrong) == "operator 0 (ADD): options are of type MulOptions; expected AddOptions"
    missing = build(Op("ADD", [Tensor((2,)), Tensor((2,))], [Tensor((2,))]))
    assert refusal(missing) == "operator 0 (ADD): options are of type none; expected AddOptions"


def test_variable_of_an_operator_without_state_is_refused() -> None:
    data = changed(chain(), lambda model: model.subgraphs[0].tensors.append(schema.TensorT(shape=[2], isVariable=True)))
    data = changed(data, set_field("subgraphs.0.operators.1.inputs", [3]))
    assert refusal(data) == "operator 1 (LOG): input 0 is a variable"


# ---- Limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"tensors": 2}, "the sub-model needs 3 tensors; at most 2 are supported"),
        ({"operators": 1}, "the sub-model needs 2 operators; at most 1 are supported"),
        ({"subgraphs": 0}, "the sub-model needs 1 subgraphs; at most 0 are supported"),
        ({"tensor_bytes": 7}, "tensor 0: shape [2] takes 8 bytes; at most 7"),
        ({"live_bytes": 23}, "the sub-model needs 24 live_bytes; at most 23 are supported"),
        ({"executions": 1}, "the sub-model needs 2 operator executions; at most 1 are supported"),
        ({"work": 7}, "the sub-model needs 8 steps of work; at most 7 are supported"),
    ],
)
def test_limits_are_enforced(limits: dict[str, int], message: str) -> None:
    assert refusal(chain(), SubModelLimits(**limits)) == message


def test_live_bytes_do_not_count_tensors_that_are_not_needed_anymore() -> None:
    tensors = [Tensor((250,)) for _ in range(11)]
    data = build(*(Op("EXP", [first], [second]) for first, second in itertools.pairwise(tensors)))
    check(data, SubModelLimits(live_bytes=3000))
    assert "needs 3000 live_bytes" in refusal(data, SubModelLimits(live_bytes=2999))


def test_work_counts_multiplications() -> None:
    op = Op("FULLY_CONNECTED", [Tensor((10, 20)), Tensor((30, 20), data=np.ones((30, 20)))], [Tensor((10, 30))])
    op.options = options("FullyConnected")
    check(build(op), SubModelLimits(work=10 * 20 * 30 + 1100))
    assert "steps of work" in refusal(build(op), SubModelLimits(work=10 * 20 * 30))
