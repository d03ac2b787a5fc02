"""Real models: their operations, and constants that are equal to those that LiteRT reads from the same files."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.operations import SIGNATURES, Arguments
from nnhal.types import Memory, Model, OperandLifeTime, OperandType, OperationType, is_tensor, operation_name
from nnhal_driver.validation.model import validate_model
from tests.nnhal.tflite.build import arguments, value_of
from tests.shared import shared

DEMO = Path(__file__).parents[3] / "tools" / "nnhal_tools" / "demo" / "digits.tflite"

SEPARABLE = {"CONV_2D": 14, "DEPTHWISE_CONV_2D": 13, "AVERAGE_POOL_2D": 1, "RESHAPE": 1}
RESNET = {"CONV_2D": 9, "ADD": 3, "AVERAGE_POOL_2D": 1, "RESHAPE": 1, "FULLY_CONNECTED": 1, "SOFTMAX": 1}
HEAD = {"FULLY_CONNECTED": 1, "SOFTMAX": 1}

OPERATIONS: dict[str, dict[str, int]] = {
    "ad01_fp32": {"FULLY_CONNECTED": 10},
    "ad01_int8": {"FULLY_CONNECTED": 10},
    "deeplabv3_mnv2_dm05_pascal_quant": {
        "CONV_2D": 38,
        "DEPTHWISE_CONV_2D": 17,
        "ADD": 10,
        "AVERAGE_POOL_2D": 1,
        "RESIZE_BILINEAR": 3,
        "DEQUANTIZE": 1,  # with QUANTIZE, a requantization
        "QUANTIZE": 1,
        "CONCATENATION": 1,
        "ARGMAX": 1,
    },
    "kws_ref_model": {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 4, "AVERAGE_POOL_2D": 1, "RESHAPE": 1, **HEAD},
    "mobilenet_v1_0.25_128_quant": {**SEPARABLE, "CONV_2D": 15, "SOFTMAX": 1},
    "mobilenet_v2_1.0_224_quant": {
        "CONV_2D": 36,
        "DEPTHWISE_CONV_2D": 17,
        "ADD": 10,
        "AVERAGE_POOL_2D": 1,
        "RESHAPE": 1,
        "SOFTMAX": 1,
    },
    "pretrainedResnet": RESNET,
    "pretrainedResnet_quant": RESNET,
    "vww_96_float": {**SEPARABLE, **HEAD},
    "vww_96_int8": {**SEPARABLE, **HEAD},
}


def path_of(name: str) -> Path:
    return shared(f"models/{name}.tflite")


@pytest.fixture(params=[*OPERATIONS, "digits"])
def path(request: pytest.FixtureRequest) -> Path:
    return DEMO if request.param == "digits" else path_of(request.param)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    model = tflite.load(path_of(name))
    assert Counter(operation_name(operation.type) for operation in model.main.operations) == OPERATIONS[name]


def test_model_is_valid_and_matches_the_signatures(path: Path) -> None:
    model = tflite.load(path)
    validate_model(model)
    operands = model.main.operands
    for operation in model.main.operations:
        if operation.type in SIGNATURES:
            inputs, outputs = ([operands[i] for i in indexes] for indexes in (operation.inputs, operation.outputs))
            assert isinstance(SIGNATURES[operation.type].bind(inputs, outputs), Arguments)


def test_operands_are_numbered_in_order_of_use(path: Path) -> None:
    model = tflite.load(path)
    uses = [*model.main.input_indexes]
    for operation in model.main.operations:
        uses += [*operation.inputs, *operation.outputs]
    assert set(uses) == set(range(len(model.main.operands)))
    written = [operation.outputs[0] for operation in model.main.operations]
    assert all(before < after for before, after in pairwise(written))


def test_bias_scales_match_the_rule_of_nnapi(path: Path) -> None:
    model = tflite.load(path)
    convolutions = (OperationType.CONV_2D, OperationType.DEPTHWISE_CONV_2D, OperationType.FULLY_CONNECTED)
    for i, operation in enumerate(model.main.operations):
        if operation.type not in convolutions:
            continue
        input_, weights, bias, *_ = arguments(model, i)
        product = np.float32(input_.scale) * np.float32(weights.scale)
        assert abs(bias.scale - float(product)) <= 1e-6 * min(bias.scale, float(product))


def test_constants_equal_those_of_litert(path: Path) -> None:
    """Compare filter and bias of every convolution and matrix product."""
    interpreter_module = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = interpreter_module.Interpreter(
        model_path=str(path), experimental_op_resolver_type=interpreter_module.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    litert_operators = [op for op in interpreter._get_ops_details() if op["op_name"] in kinds]
    model = tflite.load(path)
    ours = [i for i, op in enumerate(model.main.operations) if operation_name(op.type) in kinds]
    assert len(ours) == len(litert_operators) > 0
    for number, litert_operator in zip(ours, litert_operators, strict=True):
        for operand, tensor in list(zip(arguments(model, number), litert_operator["inputs"], strict=False))[1:3]:
            np.testing.assert_array_equal(value_of(model, operand), interpreter.get_tensor(tensor))


def test_inputs_and_outputs_equal_those_of_litert(path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(model_path=str(path))
    model = tflite.load(path)
    for details, indexes, names in (
        (interpreter.get_input_details(), model.main.input_indexes, model.input_names),
        (interpreter.get_output_details(), model.main.output_indexes, model.output_names),
    ):
        assert names == tuple(detail["name"] for detail in details)
        for detail, index in zip(details, indexes, strict=True):
            operand = model.main.operands[index]
            assert operand.dimensions == tuple(detail["shape"])
            assert (operand.scale, operand.zero_point) == tuple(map(float, detail["quantization"]))


def test_large_constants_stay_in_the_file(path: Path) -> None:
    model: Model = tflite.load(path)
    pool = model.pools[0]
    assert isinstance(pool, Memory)
    assert pool.size == path.stat().st_size
    for operand in model.main.operands:
        if operand.location.pool_index:
            assert not is_tensor(operand.type), "only regions of the LiteRT extension are not in the file"
        large = operand.location.length > 128
        assert large == (operand.lifetime == OperandLifeTime.CONSTANT_POOL)


def test_deeplab_ends_in_int32_classes() -> None:
    model: Any = tflite.load(path_of("deeplabv3_mnv2_dm05_pascal_quant"))
    output = model.main.operands[model.main.output_indexes[0]]
    assert (output.type, output.dimensions) == (OperandType.TENSOR_INT32, (1, 513, 513))
