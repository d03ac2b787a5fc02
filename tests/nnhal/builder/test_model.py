"""ModelBuilder: built models are valid and run, and missing parts are reported."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from nnhal import HalError, ModelBuilder
from nnhal.builder.constants import MAX_COPIED_BYTES
from nnhal.types import (
    DataLocation,
    ExtensionNameAndPrefix,
    ExtensionParams,
    Memory,
    Operand,
    OperandLifeTime,
    SymmPerChannelQuantParams,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import device, execute, prepare
from tests.nnhal.builder.models import (
    CHANNELS,
    F32,
    PAIR,
    assert_rejected,
    of_lifetime,
    relu,
    run,
)


def test_model_runs() -> None:
    rng = np.random.default_rng(0)
    weights, bias = rng.standard_normal((4, 1, 1, 1)).astype(np.float32), np.arange(4, dtype=np.float32)
    b = ModelBuilder()
    image = b.input(F32, [1, 8, 8, 1], name="image")
    maps = b.add(Op.CONV_2D, image, b.constant(weights), bias, 1, 1, 1, 0, output=Operand(F32, (1, 8, 8, 4)))
    flat = b.add(Op.RESHAPE, maps, [1, -1], output=Operand(F32, (1, 256)))
    b.output(b.add(Op.SOFTMAX, flat, 1, output=flat.description), name="probabilities")

    x = rng.standard_normal((1, 8, 8, 1)).astype(np.float32)
    powers = np.exp((x * weights.ravel() + bias).ravel())
    np.testing.assert_allclose(run(b, x)[0][0], powers / powers.sum(), rtol=1e-5)
    assert (b.build().input_names, b.build().output_names) == (("image",), ("probabilities",))


def test_operation_with_several_outputs() -> None:
    b = ModelBuilder()
    x = b.input(F32, [1, 4])
    first, second = b.add(Op.SPLIT, x, 1, 2, outputs=[Operand(F32, (1, 2))] * 2)
    b.output(second)
    b.output(first)
    outputs = run(b, np.array([[1, 2, 3, 4]], np.float32))
    np.testing.assert_array_equal(np.concatenate(outputs), [[3, 4], [1, 2]])


def test_outputs_may_be_read_and_shapes_unknown() -> None:
    b = ModelBuilder()
    x = b.input(F32)
    y = b.add(Op.ADD, x, x, 0, output=Operand(F32))
    b.output(y)
    b.output(b.add(Op.ADD, y, y, 0, output=Operand(F32)))
    model = b.build()
    validate_model(model)
    assert [operand.dimensions for operand in model.main.operands if operand.type == F32] == [(), (), ()]


def test_quantized_values() -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_QUANT8_ASYMM, [2], scale=0.1, zero_point=10, name="x")
    y = b.constant(np.array([20, 30], np.uint8), T.TENSOR_QUANT8_ASYMM, scale=0.1, zero_point=10)
    b.output(b.add(Op.ADD, x, y, 0, output=Operand(T.TENSOR_QUANT8_ASYMM, (2,), 0.1, 10)))
    assert x.description.scale == float(np.float32(0.1))
    channels = b.input(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, [1], channel_quant=SymmPerChannelQuantParams((0.1,)), name="w")
    assert channels.description.extra_params == SymmPerChannelQuantParams((float(np.float32(0.1)),))
    np.testing.assert_array_equal(run(b, np.array([10, 11], np.uint8), np.zeros(1, np.int8))[0], [20, 31])


def test_scales_per_channel() -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_QUANT8_ASYMM, [1, 1, 1, 1], scale=1, zero_point=0)
    w = b.constant(
        np.array([2, 4], np.int8).reshape(2, 1, 1, 1), T.TENSOR_QUANT8_SYMM_PER_CHANNEL, channel_quant=CHANNELS
    )
    y = b.add(
        Op.CONV_2D, x, w, np.zeros(2, np.int32), 1, 1, 1, 0, output=Operand(T.TENSOR_QUANT8_ASYMM, (1, 1, 1, 2), 1)
    )
    b.output(y)
    np.testing.assert_array_equal(run(b, np.full((1, 1, 1, 1), 7, np.uint8))[0].ravel(), [7, 7])


def test_numbers_take_the_type_of_the_signature() -> None:
    b = ModelBuilder()
    half = b.input(T.TENSOR_FLOAT16, [1, 2])
    full = b.input(F32, [1, 2])
    layout = b.input(F32, [1, 1, 1, 1])
    for x in (half, full):
        b.output(b.add(Op.SOFTMAX, x, 1, output=x.description))
    b.output(b.add(Op.AVERAGE_POOL_2D, layout, 1, 1, 1, 1, 1, 0, False, output=layout.description))
    b.output(b.add(Op.PAD_V2, full, [[0, 0], [0, 1]], 1, output=Operand(F32, (1, 3))))
    b.output(b.add(Op.SOFTMAX, full, np.float64(0.5), output=full.description))
    model = b.build()
    validate_model(model)
    operands = model.main.operands
    third = [T(operands[operation.inputs[-1]].type) for operation in model.main.operations]
    assert third == [T.FLOAT16, T.FLOAT32, T.BOOL, T.FLOAT32, T.FLOAT32]
    paddings = operands[model.main.operations[3].inputs[1]]
    assert (paddings.type, paddings.dimensions) == (T.TENSOR_INT32, (2, 2))


def test_numbers_and_flags_tell_forms_of_equal_length_apart() -> None:
    b = ModelBuilder()
    x = b.input(F32, [1, 4, 4, 1])
    w, bias, output = np.zeros((1, 1, 1, 1), np.float32), np.zeros(1, np.float32), Operand(F32, (1, 4, 4, 1))
    explicit = (0, 0, 0, 0, 1, 1, 0)
    implicit = (1, 1, 1, 0, False, 1, 1)
    for rest in (explicit, implicit):
        b.output(b.add(Op.CONV_2D, x, w, bias, *rest, output=output))
    np.testing.assert_array_equal(run(b, np.ones((1, 4, 4, 1), np.float32)), np.zeros((2, 1, 4, 4, 1)))


def test_operand_of_a_model_may_describe_an_output() -> None:
    """Its lifetime and location are ignored."""
    b = ModelBuilder()
    x, y = relu(b)
    pooled = replace(PAIR, lifetime=OperandLifeTime.CONSTANT_POOL, location=DataLocation(3, 4, 8))
    b.output(b.add(Op.ADD, x, y, 0, output=pooled))
    np.testing.assert_array_equal(run(b, np.array([-1, 1], np.float32))[0], [-1, 2])


def test_equal_scalars_are_one_operand() -> None:
    b = ModelBuilder()
    x = b.input(F32, [2])
    b.output(b.add(Op.ADD, b.add(Op.ADD, x, x, 0, output=PAIR), x, 0, output=PAIR))
    assert [operand.type for operand in b.build().main.operands] == [F32, T.INT32, F32, F32]


def test_omitted_operand_has_no_value() -> None:
    b = ModelBuilder()
    x = b.input(F32, [2, 3])
    w, time = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    state = b.input(F32, [2, 8])
    _, y = b.add(Op.SVDF, x, w, time, None, state, 1, 0, outputs=[Operand(F32, (2, 8)), Operand(F32, (2, 4))])
    with pytest.raises(HalError, match="has no outputs"):
        b.build()
    b.output(y)
    model = b.build()
    validate_model(model)
    (omitted,) = of_lifetime(model.main, OperandLifeTime.NO_VALUE)
    assert (omitted.type, omitted.dimensions) == (F32, ())
    assert execute(prepare(model), [np.ones((2, 3), np.float32), np.zeros((2, 8), np.float32)])[1][0].shape == (2, 4)


def test_omitted_quantized_operand_has_a_scale() -> None:
    """V-OPERAND-14: the rules also hold for an operand without a value."""
    weights = [np.zeros((4, 2), np.int8)] * 3
    b = ModelBuilder()
    x = b.input(T.TENSOR_QUANT8_ASYMM_SIGNED, [1, 2], scale=0.1)
    quantized = [b.constant(w, T.TENSOR_QUANT8_SYMM, scale=0.1) for w in weights]
    recurrent = [b.constant(np.zeros((4, 4), np.int8), T.TENSOR_QUANT8_SYMM, scale=0.1)] * 3
    bias = [np.zeros(4, np.int32)] * 3
    h = b.input(T.TENSOR_QUANT8_ASYMM_SIGNED, [1, 4], scale=0.1)
    c = b.input(T.TENSOR_QUANT16_SYMM, [1, 4], scale=2**-11)
    args = [x, None, *quantized, None, *recurrent, None, None, None, None, *bias, None, None, h, c]
    scalars = [None] * 4 + [0.0, 0.0, 0.01, 0.01, 0.01, 0.01, 0, 0.1]
    outputs = b.add(Op.QUANTIZED_LSTM, *args, *scalars, outputs=[h.description, c.description, h.description])
    for output in outputs:
        b.output(output)
    model = b.build()
    validate_model(model)
    assert {operand.scale for operand in of_lifetime(model.main, OperandLifeTime.NO_VALUE)} == {0.0, 1.0}


def test_small_constants_are_copied_and_large_ones_share_a_pool() -> None:
    rng = np.random.default_rng(1)
    small, odd = rng.standard_normal(MAX_COPIED_BYTES // 4).astype(np.float32), np.array([1, 0, 1], bool)
    large = [
        rng.standard_normal(MAX_COPIED_BYTES // 4 + 1).astype(np.float32),
        rng.standard_normal(99).astype(np.float32),
    ]
    long = np.ones(MAX_COPIED_BYTES + 1, bool)
    b = ModelBuilder()
    b.constant(odd)
    b.constant(long)
    for value in (small, *large, np.arange(600, dtype=np.int32).reshape(20, 30)[:, ::2]):
        b.constant(value)
    x = b.input(F32, [2])
    b.output(b.add(Op.ADD, x, x, 0, output=PAIR))
    model = b.build()
    validate_model(model)
    copied = of_lifetime(model.main, OperandLifeTime.CONSTANT_COPY)
    pooled = of_lifetime(model.main, OperandLifeTime.CONSTANT_POOL)
    assert [operand.dimensions for operand in copied] == [(3,), (32,), ()]
    assert [operand.dimensions for operand in pooled] == [(129,), (33,), (99,), (20, 15)]
    assert all(operand.location.offset % 4 == 0 for operand in (*copied, *pooled))
    (pool,) = model.pools
    assert isinstance(pool, Memory)
    location = pooled[3].location
    stored = pool.view[location.offset : location.offset + location.length].view(np.int32)
    np.testing.assert_array_equal(stored, np.arange(600).reshape(20, 30)[:, ::2].ravel())
    location = copied[1].location
    assert model.operand_values[location.offset : location.offset + location.length] == small.tobytes()


def test_relaxed() -> None:
    for relaxed in (False, True):
        b = ModelBuilder(relaxed=relaxed)
        x = b.input(F32, [2])
        b.output(b.add(Op.ADD, x, x, 0, output=PAIR))
        assert b.build().relax_computation_float32_to_float16 == relaxed


def test_scalar_as_a_model_input() -> None:
    b = ModelBuilder()
    x, activation = b.input(F32, [2]), b.input(T.INT32)
    b.output(b.add(Op.ADD, x, x, activation, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([-1, 2], np.float32), np.array(1, np.int32))[0], [0, 4])


def test_import_does_not_load_grpc() -> None:
    code = "import sys, nnhal; nnhal.ModelBuilder; print([m for m in ('grpc', 'google', 'driver') if m in sys.modules])"
    process = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_extension() -> None:
    b = ModelBuilder()
    first, second = b.extension("org.example.one"), b.extension("org.example.two")
    assert b.extension("org.example.one") == first
    x = b.input(second.operand_type(3), [5], extension_params=b"\x01", name="x")
    key = b.constant(b"secret", first.operand_type(0))
    table = b.constant(np.arange(100.0), first.operand_type(1))
    y = b.add(first.operation_type(7), x, key, table, 3, True, 0.5, np.array([1], np.float32), output=x.description)
    b.output(y, name="y")
    model = b.build()
    validate_model(model)
    names = (ExtensionNameAndPrefix("org.example.one", 1), ExtensionNameAndPrefix("org.example.two", 2))
    assert model.extension_name_to_prefix == names
    assert model.main.operations[0].type == 0x0001_0007
    types = [operand.type for operand in model.main.operands]
    assert types == [0x0002_0003, 0x0001_0000, 0x0001_0001, T.INT32, T.BOOL, T.FLOAT32, F32, 0x0002_0003]
    assert model.main.operands[0].extra_params == model.main.operands[-1].extra_params == ExtensionParams(b"\x01")
    assert model.operand_values[:6] == b"secret"
    assert model.pools[0].view.tobytes() == np.arange(100.0).tobytes()  # type: ignore[union-attr]
    assert device().get_supported_operations(GivenModel(model))[0] == [False]


def test_outputs_are_named_and_listed_once() -> None:
    b = ModelBuilder()
    x, y = relu(b)
    b.output(y, name="y")
    assert_rejected(lambda: b.output(y), "V-SUBGRAPH-06", "which is an output already")
    z = b.add(Op.RELU, x, output=PAIR)
    assert_rejected(lambda: b.output(z, name="y"), "", "the name is taken already")
    b.output(z)
    assert_rejected(b.build, "", "output 1 has no name, but output 0 has: name all or none")


def test_build_reports_missing_parts() -> None:
    b = ModelBuilder()
    _, y = relu(b)
    assert_rejected(b.build, "V-SUBGRAPH-03", "main has no outputs")
    b.output(y)
    b.subgraph()
    assert_rejected(b.build, "", "referenced subgraph 0 is not complete")
    with pytest.raises(HalError, match="referenced subgraph 1 has no operations"), b.subgraph():
        pass
    with pytest.raises(RuntimeError, match="own"), b.subgraph():
        raise RuntimeError("my own")


def test_rejected_operation_leaves_nothing_behind() -> None:
    b = ModelBuilder()
    x, y = relu(b)
    b.output(y)
    before = b.build()
    with pytest.raises(HalError):
        b.add(Op.SOFTMAX, x, 1.0, np.zeros(100, np.float32), output=PAIR)
    assert b.build().main == before.main
    assert b.build().pools == ()


def test_one_output_or_several() -> None:
    b = ModelBuilder()
    x, _ = relu(b)
    with pytest.raises(TypeError, match="of output= and outputs=; expected one of them"):
        b.add(Op.RELU, x)  # type: ignore[call-overload]
