"""Parsing: flatbuffers become sub-models; damaged ones are refused, with the place of the damage."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel import has_static_shapes, parse
from tests.driver.backends.litert.submodel.checking import changed, exp, refusal, set_field
from tests.driver.backends.litert.submodel.detection import detection
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


def _second_options(model: Any) -> None:
    operator = model.subgraphs[0].operators[0]
    operator.builtinOptions2Type = schema.BuiltinOptions2.DilateOptions
    operator.builtinOptions2 = schema.DilateOptionsT()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_field("version", 2), "the schema has version 2; expected 3"),
        (set_field("subgraphs", []), "subgraph 0: there is no operator"),
        (set_field("subgraphs.0.operators", []), "subgraph 0: there is no operator"),
        (
            set_field("subgraphs.0.operators.0.opcodeIndex", 1),
            "subgraph 0, operator 0: opcode_index is 1; there are 1 codes",
        ),
        (set_field("subgraphs.0.tensors.1.buffer", 7), "tensor 1: buffer is 7; there are 1 buffers"),
        (set_field("subgraphs.0.inputs", [3]), "subgraph 0: inputs refers to tensor 3; there are 2"),
        (set_field("subgraphs.0.outputs", [-1]), "subgraph 0: outputs refers to tensor -1; there are 2"),
        (set_field("subgraphs.0.operators.0.inputs", [-2]), "operator 0 (EXP): inputs refers to tensor -2"),
        (set_field("subgraphs.0.operators.0.outputs", [-1]), "operator 0 (EXP): outputs refers to tensor -1"),
        (set_field("subgraphs.0.operators.0.intermediates", [2]), "operator 0 (EXP): intermediates refers to tensor 2"),
    ],
)
def test_damaged_model_is_refused(change: Callable[[Any], None], message: str) -> None:
    assert message in refusal(changed(exp(), change))


@pytest.mark.parametrize(
    "change",
    [
        set_field("operatorCodes.0.builtinCode", 9999),
        set_field("subgraphs.0.tensors.0.type", 5),
        set_field("subgraphs.0.tensors.0.type", 99),
        set_field("subgraphs.0.tensors.0.shape", [2, -1]),
        set_field("subgraphs.0.tensors.0.shape", [2, 0]),
        set_field("subgraphs.0.tensors.1.externalBuffer", 3),
        set_field("subgraphs.0.tensors.1.shape", [3, 2]),
        set_field("externalBuffers", [schema.ExternalBufferT()]),
        set_field("subgraphs.0.operators.0.largeCustomOptionsSize", 9),
        _sparsity,
        _blockwise,
        _variant,
        _second_options,
    ],
)
def test_model_that_cannot_be_copied_runs_as_it_is(change: Callable[[Any], None]) -> None:
    assert has_static_shapes(parse(exp()))
    assert not has_static_shapes(parse(changed(exp(), change)))


def test_metadata_is_ignored() -> None:
    model = unpack(exp())
    model.metadata = [schema.MetadataT(name="model_control_dependencies", buffer=77)]
    model.description = "any"
    assert has_static_shapes(parse(pack(model)))


def test_custom_options_are_those_of_the_file() -> None:
    (operator,) = parse(detection(data=b"any")).main.operators
    assert operator.custom_options is not None
    assert (operator.kind, operator.custom_options.tobytes()) == ("TFLite_Detection_PostProcess", b"any")
