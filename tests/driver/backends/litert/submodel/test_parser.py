"""Parsing: flatbuffers become sub-models; everything that is not supported is refused, with its place."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel import parse
from tests.driver.backends.litert.submodel.checking import changed, check, exp, refusal, set_field
from tests.driver.backends.litert.submodel.detection import OPTIONS, detection
from tests.driver.backends.litert.submodel.encoding import object_api_fields
from tests.nnhal.tflite.build import Op, Tensor, build, options, pack, schema, unpack


def test_model_has_tensors_operators_and_options() -> None:
    weights = Tensor((4, 1, 1, 3), "INT8", np.arange(12), (0.5, 1, 2, 4), (0,) * 4)
    image = Tensor((1, 2, 2, 3), "INT8", scale=(0.25,), zero_point=(-3,))
    result = Tensor((1, 1, 2, 4), "INT8", scale=(8,), zero_point=(0,))
    table = options("Conv2D", strideH=2, strideW=1, padding=schema.Padding.SAME)
    model = parse(build(Op("CONV_2D", [image, weights, None], [result], table)))
    (operator,) = model.main.operators
    assert (operator.name, operator.options_type) == ("CONV_2D", "Conv2DOptions")
    assert operator.options["stride_h"] == 2
    assert object_api_fields(operator) == {key: value for key, value in vars(table).items() if value is not None}
    assert operator.inputs == (0, 1, -1)
    assert [tensor.shape for tensor in model.inputs + model.outputs] == [(1, 2, 2, 3), (1, 1, 2, 4)]
    constant = model.main.tensors[1]
    assert constant.quantization is not None
    np.testing.assert_array_equal(constant.values(), np.arange(12).reshape(4, 1, 1, 3))
    np.testing.assert_array_equal(constant.quantization.scales, [0.5, 1, 2, 4])
    assert model.inputs[0].data is None


def test_constants_are_views_of_the_data() -> None:
    data = np.frombuffer(
        build(Op("ADD", [Tensor((2,)), Tensor((2,), data=[1, 2])], [Tensor((2,))], options("Add"))), np.uint8
    )
    model = parse(data)
    constant = next(tensor.data for tensor in model.main.tensors if tensor.data is not None)
    assert np.shares_memory(constant, data)


def test_quantization_of_real_values_is_dropped() -> None:
    model = parse(build(Op("EXP", [Tensor((2,), scale=(1.0,), zero_point=(0,))], [Tensor((2,))])))
    assert model.inputs[0].quantization is None


def _sparsity(model: Any) -> None:
    model.subgraphs[0].tensors[0].sparsity = schema.SparsityParametersT()


def _blockwise(model: Any) -> None:
    quantization = schema.QuantizationParametersT(detailsType=schema.QuantizationDetails.BlockwiseQuantization)
    quantization.details = schema.BlockwiseQuantizationT()
    model.subgraphs[0].tensors[0].quantization = quantization


def _variant(model: Any) -> None:
    model.subgraphs[0].tensors[0].variantTensors = [schema.VariantSubTypeT()]


def _unknown_options(model: Any) -> None:
    operator = model.subgraphs[0].operators[0]
    operator.builtinOptionsType = schema.BuiltinOptions.HashtableOptions
    operator.builtinOptions = schema.HashtableOptionsT()


def _second_options(model: Any) -> None:
    operator = model.subgraphs[0].operators[0]
    operator.builtinOptions2Type = schema.BuiltinOptions2.DilateOptions
    operator.builtinOptions2 = schema.DilateOptionsT()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_field("version", 2), "the schema has version 2; expected 3"),
        (set_field("subgraphs", []), "subgraphs: there is no subgraph"),
        (set_field("operatorCodes.0.builtinCode", 9999), "operator_codes[0]: operator 9999 is unknown"),
        (set_field("subgraphs.0.operators.0.opcodeIndex", 1), "operator 0: opcode_index is 1; there are 1 codes"),
        (set_field("subgraphs.0.tensors.0.type", 5), "tensor 0: type STRING is not supported"),
        (set_field("subgraphs.0.tensors.0.type", 13), "tensor 0: type RESOURCE is not supported"),
        (set_field("subgraphs.0.tensors.0.type", 99), "tensor 0: type 99 is not supported"),
        (set_field("subgraphs.0.tensors.1.buffer", 7), "tensor 1: buffer is 7; there are 1 buffers"),
        (set_field("subgraphs.0.tensors.1.externalBuffer", 3), "tensors[1].external_buffer is 3; only 0 is supported"),
        (set_field("buffers.0.offset", 3), "buffers[0].offset is 3; only 0 is supported"),
        (set_field("externalBuffers", [schema.ExternalBufferT()]), "model.external_buffers is not supported"),
        (set_field("subgraphs.0.operators.0.customOptions", [1]), "operator 0 (EXP): custom_options is set"),
        (set_field("subgraphs.0.operators.0.largeCustomOptionsSize", 9), "large_custom_options_size is 9"),
        (_sparsity, "tensors[0].sparsity is not supported"),
        (_blockwise, "quantization.details"),
        (_variant, "tensors[0].variant_tensors is not supported"),
        (_unknown_options, "operator 0 (EXP): options are of type HashtableOptions; expected ExpOptions"),
        (_second_options, "builtin_options_2_type is 18; only 0 is supported"),
    ],
)
def test_unsupported_content_is_refused(change: Callable[[Any], None], message: str) -> None:
    assert message in refusal(changed(exp(), change))


def test_options_must_be_finite() -> None:
    data = build(Op("LEAKY_RELU", [Tensor((2,))], [Tensor((2,))], options("LeakyRelu", alpha=float("nan"))))
    assert refusal(data) == "operator 0 (LEAKY_RELU): alpha is nan; expected a finite number"


def test_metadata_is_ignored() -> None:
    model = unpack(exp())
    model.metadata = [schema.MetadataT(name="model_control_dependencies", buffer=77)]
    model.description = "any"
    check(pack(model))


def test_unknown_custom_operator_is_refused() -> None:
    data = build(Op("CUSTOM", [Tensor((2,))], [Tensor((2,))], custom="Mine"))
    assert refusal(data) == "operator_codes[0]: custom operator 'Mine' is not supported"


def test_custom_options_are_encoded_again() -> None:
    (operator,) = parse(detection()).main.operators
    assert {name: operator.options[name] for name in OPTIONS} == pytest.approx(OPTIONS)
    assert operator.custom_options is not None
    (again,) = parse(detection(data=operator.custom_options.tobytes())).main.operators
    assert again.options == operator.options


@pytest.mark.parametrize("data", [b"\0", b"\1\2\3", bytes(5000), b"\xff" * 40, b"\x05\x04\x01"])
def test_damaged_custom_options_are_refused(data: bytes) -> None:
    assert "operator 0 (TFLite_Detection_PostProcess): custom_options" in refusal(detection(data=data))
