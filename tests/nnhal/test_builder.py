"""ModelBuilder: what it builds is valid and runs, and each thing that it refuses is named."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.validation.model import validate_model
from nnhal import HalError, ModelBuilder
from nnhal.builder import OperandRef, SubgraphBuilder, rules
from nnhal.builder.constants import MAX_COPIED_BYTES
from nnhal.types import (
    AnyArray,
    DataLocation,
    ErrorStatus,
    ExtensionNameAndPrefix,
    ExtensionParams,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Subgraph,
    SymmPerChannelQuantParams,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import device, execute, prepare

F32 = T.TENSOR_FLOAT32
PAIR = Operand(F32, (2,))
FLAG = Operand(T.TENSOR_BOOL8, (1,))
CHANNELS = SymmPerChannelQuantParams((0.5, 0.25), 0)


def run(b: ModelBuilder, *inputs: AnyArray) -> list[AnyArray]:
    """Builds, validates and runs on the device in this process."""
    model = b.build()
    validate_model(model)
    return execute(prepare(model), inputs)[1]


def of_lifetime(subgraph: Subgraph, lifetime: OperandLifeTime) -> list[Operand]:
    return [operand for operand in subgraph.operands if operand.lifetime == lifetime]


# ---- What is built --------------------------------------------------------------------------------------


def test_a_model_runs() -> None:
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


def test_an_operation_with_several_outputs() -> None:
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


def test_numbers_take_the_type_that_the_signature_wants() -> None:
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


def test_an_operand_of_a_model_may_describe_an_output() -> None:
    """Only what it is counts, not where its value comes from."""
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


def test_what_is_omitted_has_no_value() -> None:
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


def test_an_omitted_quantized_operand_has_a_scale() -> None:
    """V-OPERAND-14: the rules hold without a value too."""
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
    taken = pool.view[location.offset : location.offset + location.length].view(np.int32)
    np.testing.assert_array_equal(taken, np.arange(600).reshape(20, 30)[:, ::2].ravel())
    location = copied[1].location
    assert model.operand_values[location.offset : location.offset + location.length] == small.tobytes()


def test_relaxed() -> None:
    for relaxed in (False, True):
        b = ModelBuilder(relaxed=relaxed)
        x = b.input(F32, [2])
        b.output(b.add(Op.ADD, x, x, 0, output=PAIR))
        assert b.build().relax_computation_float32_to_float16 == relaxed


def test_a_number_as_a_model_input() -> None:
    b = ModelBuilder()
    x, activation = b.input(F32, [2]), b.input(T.INT32)
    b.output(b.add(Op.ADD, x, x, activation, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([-1, 2], np.float32), np.array(1, np.int32))[0], [0, 4])


def test_importing_it_loads_no_grpc() -> None:
    code = "import sys, nnhal; nnhal.ModelBuilder; print([m for m in ('grpc', 'google', 'driver') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- IF and WHILE ---------------------------------------------------------------------------------------


def adding(b: ModelBuilder, amount: float) -> SubgraphBuilder:
    """x -> x + amount."""
    with b.subgraph() as graph:
        x = graph.input(F32, [2], name="x")
        graph.output(graph.add(Op.ADD, x, np.array([amount, amount], np.float32), 0, output=PAIR))
    return graph


def below(b: ModelBuilder, limit: float) -> SubgraphBuilder:
    """x -> whether x[0] < limit."""
    with b.subgraph() as graph:
        x = graph.input(F32, [2])
        first = graph.add(Op.SLICE, x, [0], [1], output=Operand(F32, (1,)))
        graph.output(graph.add(Op.LESS, first, [limit], output=FLAG))
    return graph


@pytest.mark.parametrize(("flag", "expected"), [(True, [11, 12]), (False, [101, 102])])
def test_if(flag: bool, expected: list[int]) -> None:
    b = ModelBuilder()
    condition, x = b.input(T.TENSOR_BOOL8, [1]), b.input(F32, [2])
    b.output(b.add(Op.IF, condition, adding(b, 10), adding(b, 100), x, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([flag]), np.array([1, 2], np.float32))[0], expected)


def test_while() -> None:
    b = ModelBuilder()
    x = b.input(F32, [2])
    b.output(b.add(Op.WHILE, below(b, 5), adding(b, 2), x, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([0, 1], np.float32))[0], [6, 7])


def test_values_given_as_arrays_and_subgraphs_within_subgraphs() -> None:
    b = ModelBuilder()
    ten, hundred = adding(b, 10), adding(b, 100)
    with b.subgraph() as twice:
        y = twice.input(F32, [2])
        for _ in range(2):
            y = twice.add(Op.IF, np.array([True]), ten, hundred, y, output=PAIR)
        twice.output(y)
    b.output(b.add(Op.IF, [False], ten, twice, [1, 2], output=PAIR))
    model = b.build()
    assert len(of_lifetime(model.referenced[2], OperandLifeTime.SUBGRAPH)) == 2
    np.testing.assert_array_equal(run(b)[0], [21, 22])


def test_unknown_shapes_match_any() -> None:
    b = ModelBuilder()
    condition, x = b.input(T.TENSOR_BOOL8, [1]), b.input(F32, [2])
    with b.subgraph() as unknown_rank:
        y = unknown_rank.input(F32)
        unknown_rank.output(unknown_rank.add(Op.ADD, y, y, 0, output=Operand(F32)))
    with b.subgraph() as unknown_length:
        y = unknown_length.input(F32, [0])
        unknown_length.output(unknown_length.add(Op.RELU, y, output=Operand(F32, (0,))))
    b.output(b.add(Op.IF, condition, unknown_rank, unknown_length, x, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([True]), np.array([1, 2], np.float32))[0], [2, 4])


def shaped(b: ModelBuilder, inputs: list[Operand], outputs: int, result: Operand = PAIR) -> SubgraphBuilder:
    """A subgraph of any form: each output is an operation of an extension."""
    type_ = b.extension("org.example.shapes").operation_type(0)
    with b.subgraph() as graph:
        refs = [graph.input(o.type, o.dimensions, scale=o.scale, zero_point=o.zero_point) for o in inputs]
        for _ in range(outputs):
            graph.output(graph.add(type_, *refs, output=result))
    return graph


QUANT = Operand(T.TENSOR_QUANT8_ASYMM, (2,), 0.5)
CONTROL_FLOW_CASES: list[tuple[str, str, Callable[[ModelBuilder, OperandRef, OperandRef], object]]] = [
    ("V-OPERATION-06", "has 1 inputs and 1 outputs; it takes inputs", lambda b, c, x: b.add(Op.IF, c, output=PAIR)),
    (
        "V-OPERATION-06",
        r"input 0 \(condition\) is TENSOR_FLOAT32 \[2\]; it must be TENSOR_BOOL8 \[1\]",
        lambda b, c, x: b.add(Op.IF, x, adding(b, 1), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-06",
        r"input 0 \(condition\) is TENSOR_BOOL8 \[2\]; it must be",
        lambda b, c, x: b.add(Op.IF, [True, False], adding(b, 1), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-06",
        r"input 2 \(else\) is TENSOR_FLOAT32, not a subgraph",
        lambda b, c, x: b.add(Op.IF, c, adding(b, 1), x, x, output=PAIR),
    ),
    (
        "V-OPERATION-07",
        "gives 2 values to its then, but referenced subgraph 0 takes 1",
        lambda b, c, x: b.add(Op.IF, c, adding(b, 1), adding(b, 1), x, x, output=PAIR),
    ),
    (
        "V-OPERATION-07",
        "has 1 outputs, but its else, referenced subgraph 1, gives 2",
        lambda b, c, x: b.add(Op.IF, c, shaped(b, [PAIR], 1), shaped(b, [PAIR], 2), x, output=PAIR),
    ),
    (
        "V-OPERATION-13",
        r"input 3 is TENSOR_FLOAT32 \[2\], but the 0\. input of its else, referenced subgraph 1, is TENSOR_FLOAT32 \[3",
        lambda b, c, x: b.add(Op.IF, c, shaped(b, [PAIR], 1), shaped(b, [Operand(F32, (3,))], 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-13",
        "output 0 is TENSOR_FLOAT32.*TENSOR_QUANT8_ASYMM.*scale 0.5 zero point 0; they must match",
        lambda b, c, x: b.add(Op.IF, c, shaped(b, [PAIR], 1, QUANT), shaped(b, [PAIR], 1, QUANT), x, output=PAIR),
    ),
    ("V-OPERATION-09", r"input 0 \(condition\) is", lambda b, c, x: b.add(Op.WHILE, c, adding(b, 1), x, output=PAIR)),
    (
        "V-OPERATION-10",
        "condition, referenced subgraph 0, gives TENSOR_FLOAT32",
        lambda b, c, x: b.add(Op.WHILE, adding(b, 1), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-10",
        "gives 1 values to its condition, but referenced subgraph 0 takes 2",
        lambda b, c, x: b.add(Op.WHILE, shaped(b, [PAIR, PAIR], 1, FLAG), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-11",
        "gives 1 values to its body, but referenced subgraph 1 takes 2",
        lambda b, c, x: b.add(Op.WHILE, below(b, 1), shaped(b, [PAIR, PAIR], 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-11",
        "has 1 outputs and 1 values, but its body, referenced subgraph 1, gives 2; that must be between",
        lambda b, c, x: b.add(Op.WHILE, below(b, 1), shaped(b, [PAIR], 2), x, output=PAIR),
    ),
    (
        "V-OPERATION-13",
        "in its body, referenced subgraph 1, output 0 is TENSOR_QUANT8_ASYMM",
        lambda b, c, x: b.add(Op.WHILE, below(b, 1), shaped(b, [PAIR], 1, QUANT), x, output=QUANT),
    ),
    (
        "",
        "input 1 is referenced subgraph 0, which is not complete",
        lambda b, c, x: b.add(Op.IF, c, b.subgraph(), adding(b, 1), x, output=PAIR),
    ),
    ("", "input 1 is main; IF and WHILE run", lambda b, c, x: b.add(Op.IF, c, b, b, x, output=PAIR)),
    (
        "",
        "input 1 is referenced subgraph 0 of another model's builder",
        lambda b, c, x: b.add(Op.IF, c, adding(ModelBuilder(), 1), adding(b, 1), x, output=PAIR),
    ),
    ("", "input 0 is None, whose type is not known", lambda b, c, x: b.add(Op.IF, None, c, c, output=PAIR)),
    (
        "V-OPERATION-04",
        r"input 0 \(input0\) is SUBGRAPH, not TENSOR_FLOAT32",
        lambda b, c, x: b.add(Op.ADD, adding(b, 1), x, 0, output=PAIR),
    ),
]


@pytest.mark.parametrize(("rule", "complaint", "build"), CONTROL_FLOW_CASES)
def test_control_flow_that_does_not_fit(
    rule: str, complaint: str, build: Callable[[ModelBuilder, OperandRef, OperandRef], object]
) -> None:
    b = ModelBuilder()
    condition, x = b.input(T.TENSOR_BOOL8, [1], name="c"), b.input(F32, [2], name="x")
    refuses(lambda: build(b, condition, x), rule, complaint)


# ---- Extensions -----------------------------------------------------------------------------------------


def test_an_extension() -> None:
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
    assert device().get_supported_operations(model)[0] == [False]


# ---- What is refused ------------------------------------------------------------------------------------


def refuses(build: Callable[[], object], rule: str, complaint: str) -> None:
    with pytest.raises(HalError, match=complaint) as caught:
        build()
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)


CONV = np.zeros((4, 1, 1, 1), np.float32)
BIAS = np.zeros(4, np.float32)
MAPS = Operand(F32, (1, 8, 8, 4))
ARGUMENT_CASES: list[tuple[str, str, Callable[[ModelBuilder, OperandRef], object]]] = [
    (
        "V-OPERATION-04",
        r"operation 0 of main \(CONV_2D\): has 2 inputs; it takes 7, 8, 10, 11 or 13: inputs explicit padding: "
        r"\(input, filter, bias, .*activation \[layout\] \[dilation_width, dilation_height\]\) or implicit",
        lambda b, x: b.add(Op.CONV_2D, x, CONV, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"\(SPLIT\): has 0 outputs; it has 1 or more: .* outputs \(output\.\.\.\)",
        lambda b, x: b.add(Op.SPLIT, x, 0, 1, outputs=[]),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(filter\) is TENSOR_FLOAT16, not TENSOR_FLOAT32 \(with input TENSOR_FLOAT32.*; "
        r"given input = image \(TENSOR_FLOAT32 \[1, 8, 8, 1\]\), filter = operand \d \(TENSOR_FLOAT16",
        lambda b, x: b.add(Op.CONV_2D, x, b.constant(CONV.astype(np.float16)), BIAS, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"output 0 \(output\) is TENSOR_INT32, not TENSOR_FLOAT32",
        lambda b, x: b.add(Op.RELU, x, output=Operand(T.TENSOR_INT32, (1,))),
    ),
    (
        "V-OPERATION-04",
        "filter has rank 3; it must be 4; given",
        lambda b, x: b.add(Op.CONV_2D, x, CONV[0], BIAS, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        "paddings has 2 rows; input has rank 4; given input = image",
        lambda b, x: b.add(Op.MIRROR_PAD, x, [[0, 0], [1, 1]], 0, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(beta\) is BOOL, not FLOAT32 .*; given input = image .*, beta = True",
        lambda b, x: b.add(Op.SOFTMAX, x, True, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 2 \(axis\) is FLOAT32, not INT32 .*axis = 1\.5",
        lambda b, x: b.add(Op.SOFTMAX, x, 1, 1.5, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(shape\) is INT32, not TENSOR_INT32",
        lambda b, x: b.add(Op.RESHAPE, x, 64, output=Operand(F32, (64,))),
    ),
    (
        "V-OPERATION-04",
        r"input 2 \(axis\) is 1099511627776, which INT32 cannot hold",
        lambda b, x: b.add(Op.SOFTMAX, x, 1, 2**40, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(beta\) is 1e\+60, which FLOAT32 cannot hold",
        lambda b, x: b.add(Op.SOFTMAX, x, 1e60, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 2 \(bias\) is None, but may not be omitted: it is a TENSOR_FLOAT32",
        lambda b, x: b.add(Op.CONV_2D, x, CONV, None, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(filter\) is an array of float64 \[4, 1, 1, 1\], not TENSOR_FLOAT32: .* astype\(np\.float32\)",
        lambda b, x: b.add(Op.CONV_2D, x, CONV.astype(np.float64), BIAS, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(input1\) is an array of uint8 \[2\], .*TENSOR_QUANT8_ASYMM.*constant\(array, type, scale=\.\.\.\)",
        lambda b, x: b.add(
            Op.ADD,
            b.constant([1, 2], T.TENSOR_QUANT8_ASYMM, scale=1),
            np.array([1, 2], np.uint8),
            0,
            output=replace(QUANT),
        ),
    ),
    (
        "",
        "input 1 is a str; an operand, a number, an array, a sequence of numbers or None is wanted",
        lambda b, x: b.add(Op.RELU, x, "alpha", output=x.description),
    ),
    ("", "input 0 is no array", lambda b, x: b.add(Op.RELU, [[1], [1, 2]], output=x.description)),
    (
        "V-OPERAND-04",
        r"input 1 has dimensions \[0\]; those of a constant are above 0",
        lambda b, x: b.add(Op.MEAN, x, np.zeros(0, np.int32), 0, output=x.description),
    ),
    (
        "V-OPERAND-09",
        r"\(DEQUANTIZE\): output 0 has scale 0; that of TENSOR_QUANT8_SYMM must be > 0",
        lambda b, x: b.add(Op.DEQUANTIZE, x, output=Operand(T.TENSOR_QUANT8_SYMM, (2,))),
    ),
    (
        "V-OPERATION-01",
        "there is no such type: types are 0 to 105",
        lambda b, x: b.add(106, x, output=x.description),
    ),
    (
        "V-EXT-08",
        "has type 0x10001, but the model has no extension of prefix 1",
        lambda b, x: b.add(0x10001, x, output=x.description),
    ),
    ("V-EXT-08", "operand type 0x10001, but", lambda b, x: b.input(0x10001)),
    (
        "",
        "input 1 is None, whose type is not known",
        lambda b, x: b.add(b.extension("a.b").operation_type(1), x, None, output=x.description),
    ),
    (
        "",
        "input 0 is an array of float64",
        lambda b, x: b.add(b.extension("a.b").operation_type(1), np.zeros(2), output=x.description),
    ),
    ("V-EXT-01", "letters that no name has", lambda b, x: b.extension("org.Example")),
    ("V-EXT-02", "has no period", lambda b, x: b.extension("example")),
    ("", "ids are 0 to 65535", lambda b, x: b.extension("a.b").operation_type(65536)),
    (
        "",
        r"input 1 is y \(TENSOR_FLOAT32 \[2\]\) of another model's builder",
        lambda b, x: b.add(Op.ADD, x, ModelBuilder().input(F32, [2], name="y"), 0, output=x.description),
    ),
    ("", "another model's builder", lambda b, x: b.output(ModelBuilder().input(F32, [2]))),
    (
        "",
        r"input 0 is image \(TENSOR_FLOAT32 .*\) of main; subgraphs share nothing",
        lambda b, x: b.subgraph().add(Op.RELU, x, output=x.description),
    ),
    ("", "the name is taken already", lambda b, x: b.input(F32, [2], name="image")),
    ("", "referenced subgraph 0 is complete", lambda b, x: adding(b, 1).input(F32)),
    ("", "referenced subgraph 0 is complete", lambda b, x: adding(b, 1).constant(1)),
    ("", "referenced subgraph 0 is complete", lambda b, x: adding(b, 1).add(Op.RELU, x, output=x.description)),
    ("V-SUBGRAPH-05", "image .* of lifetime SUBGRAPH_INPUT; an output is what", lambda b, x: b.output(x)),
    ("V-SUBGRAPH-05", "of lifetime CONSTANT_COPY; an output is", lambda b, x: b.output(b.constant(1))),
    ("V-SUBGRAPH-02", "main has no operations", lambda b, x: b.build()),
]


@pytest.mark.parametrize(("rule", "complaint", "build"), ARGUMENT_CASES)
def test_what_does_not_fit_is_refused(
    rule: str, complaint: str, build: Callable[[ModelBuilder, OperandRef], object]
) -> None:
    b = ModelBuilder()
    x = b.input(F32, [1, 8, 8, 1], name="image")
    refuses(lambda: build(b, x), rule, complaint)


CONSTANT_CASES: list[tuple[str, str, Callable[[ModelBuilder], object]]] = [
    ("V-OPERAND-07", "has scale 0.5; TENSOR_FLOAT32 has none", lambda b: b.constant([1.0], F32, scale=0.5)),
    ("V-OPERAND-07", "its scales are in channel_quant", lambda b: b.input(11, [2], scale=1, channel_quant=CHANNELS)),
    ("V-OPERAND-08", "must be >= 0", lambda b: b.constant([1], T.TENSOR_INT32, scale=-1)),
    ("V-OPERAND-09", "must be > 0", lambda b: b.constant(np.array([1], np.uint8), T.TENSOR_QUANT8_ASYMM)),
    ("V-OPERAND-10", "must be -128 to 127", lambda b: b.input(14, [2], scale=1, zero_point=128)),
    ("V-OPERAND-10", "zero point 1; .* must be 0", lambda b: b.input(F32, [2], zero_point=1)),
    ("V-OPERAND-11", "has extra parameters", lambda b: b.input(F32, [2], channel_quant=CHANNELS)),
    ("V-OPERAND-12", "has no channel_quant", lambda b: b.input(11, [2])),
    (
        "V-OPERAND-12",
        "2 scales for dimension 0, which has length 3",
        lambda b: b.input(11, [3], channel_quant=CHANNELS),
    ),
    ("V-OPERAND-03", r"has dimensions \[2\]; a INT32 has none", lambda b: b.constant([1, 2], T.INT32)),
    ("V-OPERAND-04", "has no dimensions", lambda b: b.constant(1, T.TENSOR_INT32)),
    ("V-OPERAND-01", "has type 16; types are 0 to 15", lambda b: b.input(16)),
    ("V-OPERAND-02", "give the subgraph itself", lambda b: b.input(T.SUBGRAPH)),
    ("V-WIRE-03", "that is not known is 0", lambda b: b.input(F32, [-1])),
    ("", "has type 16; types", lambda b: b.constant(1, 16)),
    ("", r"constant of main \(INT32\) is 1.5, which INT32 cannot hold", lambda b: b.constant(1.5, T.INT32)),
    ("", "300.*cannot hold", lambda b: b.constant([300], T.TENSOR_QUANT8_ASYMM, scale=1)),
    ("", "2, which BOOL cannot hold", lambda b: b.constant(2, T.BOOL)),
    ("", r"array of int64 \[1\], not of int32", lambda b: b.constant(np.array([1]), T.TENSOR_INT32)),
    ("", "does not tell its operand type", lambda b: b.constant(np.array([1], np.int8))),
    (
        "V-WIRE-04",
        "the constants would have 4294967300 bytes; a model holds at most",
        lambda b: b.constant(np.broadcast_to(np.float32(0), (2**30 + 1,))),
    ),
]


@pytest.mark.parametrize(("rule", "complaint", "build"), CONSTANT_CASES)
def test_operands_that_break_a_rule_are_refused(
    rule: str, complaint: str, build: Callable[[ModelBuilder], object]
) -> None:
    refuses(lambda: build(ModelBuilder()), rule, complaint)


def relu(b: ModelBuilder) -> tuple[OperandRef, OperandRef]:
    x = b.input(F32, [2])
    return x, b.add(Op.RELU, x, output=PAIR)


def test_outputs_are_named_and_listed_once() -> None:
    b = ModelBuilder()
    x, y = relu(b)
    b.output(y, name="y")
    refuses(lambda: b.output(y), "V-SUBGRAPH-06", "which is an output already")
    z = b.add(Op.RELU, x, output=PAIR)
    refuses(lambda: b.output(z, name="y"), "", "the name is taken already")
    b.output(z)
    refuses(b.build, "", "output 1 has no name, but output 0 has: name all or none")


def test_what_is_missing_is_found_when_building() -> None:
    b = ModelBuilder()
    _, y = relu(b)
    refuses(b.build, "V-SUBGRAPH-03", "main has no outputs")
    b.output(y)
    b.subgraph()
    refuses(b.build, "", "referenced subgraph 0 is not complete")
    with pytest.raises(HalError, match="referenced subgraph 1 has no operations"), b.subgraph():
        pass
    with pytest.raises(RuntimeError, match="own"), b.subgraph():
        raise RuntimeError("my own")


def test_a_refusal_leaves_nothing_behind() -> None:
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
    with pytest.raises(TypeError, match="either output= or outputs="):
        b.add(Op.RELU, x)  # type: ignore[call-overload]


# ---- The rules are the device's --------------------------------------------------------------------------

SCALE = st.sampled_from([0.0, 0.5, -1.0, float("nan"), float("inf")])
PARAMS = st.one_of(
    st.none(),
    st.just(ExtensionParams(b"")),
    st.builds(SymmPerChannelQuantParams, st.lists(SCALE, max_size=3).map(tuple), st.integers(0, 2)),
)
DESCRIPTION = st.builds(
    Operand,
    st.one_of(st.sampled_from(sorted(T)), st.sampled_from([16, 0xFFFF, 0x10001])),
    st.lists(st.integers(-1, 3), max_size=3).map(tuple),
    SCALE,
    st.sampled_from([0, 1, -1, -128, -129, 127, 128, 255, 256, 65535, 65536]),
    extra_params=PARAMS,
)


def judged(operand: Operand) -> str:
    """The rule by which the device refuses a model with such an operand."""
    b = ModelBuilder()
    _, y = relu(b)
    b.output(y)
    model = b.build()
    spare = replace(operand, lifetime=OperandLifeTime.NO_VALUE)
    spoilt: Model = replace(model, main=replace(model.main, operands=(*model.main.operands, spare)))
    try:
        validate_model(spoilt)
    except HalError as error:
        return error.rule
    return ""


@settings(max_examples=1000, deadline=None)
@given(DESCRIPTION)
def test_operands_are_judged_as_the_device_does(operand: Operand) -> None:
    found = rules.complaint(operand)
    assert (found[0] if found else "") == judged(operand)
