"""FULLY_CONNECTED and BATCH_MATMUL on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, boolean, int32, run, run_kernel, sample, tensor

F32, INT8 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM_SIGNED
NONE, RELU, RELU1 = 0, 1, 2
YES, NO = boolean(True), boolean(False)


def value(data: object, type_: T = F32, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(data)), scale, zero_point), data


def product(x: Value, y: Value, adj_x: Value = NO, adj_y: Value = NO) -> AnyArray:
    type_ = T(x[0].type)
    scale = 0.5 if type_ == INT8 else 0.0
    return run(Op.BATCH_MATMUL, [x, y, adj_x, adj_y], [tensor(type_, (), scale, 1 if scale else 0)])[0]


def test_fully_connected_by_hand() -> None:
    # 2 x 2 x 1 elements are two rows of 2
    inputs = [value([[[1], [2]], [[3], [-4]]]), value([[1, 10], [0.5, 0], [2, 2]]), value([0, 0, -3])]
    out = run(Op.FULLY_CONNECTED, [*inputs, int32(NONE)], [tensor(F32)])[0]
    assert out.tolist() == [[21, 0.5, 3], [-37, 1.5, -5]]
    out = run(Op.FULLY_CONNECTED, [*inputs, int32(RELU)], [tensor(F32)])[0]
    assert out.tolist() == [[21, 0.5, 3], [0, 1.5, 0]]


def test_quantized_fully_connected_by_hand() -> None:
    inputs = [
        value([[3, 5]], T.TENSOR_QUANT8_ASYMM, 0.5, 1),  # 1, 2
        value([[14, 8]], T.TENSOR_QUANT8_ASYMM, 0.25, 10),  # 1, -0.5
        value([12], T.TENSOR_INT32, 0.125),  # 1.5
    ]
    output = tensor(T.TENSOR_QUANT8_ASYMM, (), 0.1, 100)
    out = run(Op.FULLY_CONNECTED, [*inputs, int32(NONE)], [output])[0]
    assert out.tolist() == [[115]]  # 1 * 1 - 2 * 0.5 + 1.5
    assert run(Op.FULLY_CONNECTED, [*inputs, int32(RELU1)], [output])[0].tolist() == [[110]]


def test_8_bit_results_are_rounded_twice() -> None:
    # 7 and 6 of scale 1/16: half of them is 3.5 and 3, rounded 4 and 3; an eighth of that is 0.5 and 0.375
    inputs = [value([[7], [6]], INT8, 0.25), value([[1]], INT8, 0.25), value([0], T.TENSOR_INT32, 0.0625)]
    assert run(Op.FULLY_CONNECTED, [*inputs, int32(NONE)], [tensor(INT8, (), 1)])[0].tolist() == [[1], [0]]


def test_product_by_hand() -> None:
    x, y = value([[1, 2, 3], [4, 5, 6]]), value([[1, 0], [0, 1], [10, 100]])
    expected = [[31, 302], [64, 605]]
    assert product(x, y).tolist() == expected
    turned = value([[1, 4], [2, 5], [3, 6]]), value([[1, 0, 10], [0, 1, 100]])
    assert product(turned[0], y, YES).tolist() == expected
    assert product(x, turned[1], NO, YES).tolist() == expected
    assert product(*turned, YES, YES).tolist() == expected


def test_quantized_product_by_hand() -> None:
    # scale 0.25 each: (4 - 2) * (3 - -1) + (0 - 2) * (7 - -1) = -8, as -0.5; stored with scale 0.5, zero point 1
    x = value([[4, 0]], INT8, 0.25, 2)
    y = value([[3], [7]], INT8, 0.25, -1)
    assert product(x, y).tolist() == [[0]]
    # 129 * 129 * 0.0625 / 0.5 is far above 127
    x, y = (value([[127]], INT8, 0.25, -2) for _ in range(2))
    assert product(x, y).tolist() == [[127]]


def test_int32_wraps_around() -> None:
    x, y = value([[2**30, 1]], T.TENSOR_INT32), value([[4], [7]], T.TENSOR_INT32)
    assert product(x, y).tolist() == [[7]]
    assert product(value([[2**30]], T.TENSOR_INT32), value([[2]], T.TENSOR_INT32)).tolist() == [[-(2**31)]]


def test_sums_are_exact_where_float32_is_not() -> None:
    # 50000 times 255 * 127, then as often 255 * -127; the remaining sum is 255 * 1
    x = np.full((1, 100_001), 127)
    y = np.r_[np.full(50_000, 127), np.full(50_000, -127), 1].reshape(-1, 1)
    inputs = [value(x, INT8, 1, -128), value(y, INT8, 1, 0), NO, NO]
    assert run(Op.BATCH_MATMUL, inputs, [tensor(INT8, (), 2.55)])[0].tolist() == [[100]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([value([[1, 2]]), value([[1], [2]]), YES, NO], "x has 1 columns, y 2 rows"),
        ([value([1, 2]), value([1, 2]), NO, NO], "x has rank 1, y 1"),
        ([value([[[1, 2]]]), value([[1], [2]]), NO, NO], "x has rank 3, y 2"),
        ([value([[[1]], [[2]]]), value([[[1]]]), NO, NO], "differ in their batch dimensions"),
    ],
)
def test_wrong_factors_fail_the_run(inputs: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message):
        run(Op.BATCH_MATMUL, inputs, [tensor(F32)])


def test_empty_matrices_fail_the_run() -> None:
    inputs = [(tensor(F32), np.zeros((2, 0))), (tensor(F32), np.zeros((0, 2))), NO, NO]
    with pytest.raises(HalError, match="x has no elements"):
        run_kernel(Op.BATCH_MATMUL, inputs, [tensor(F32)])


@pytest.mark.parametrize(
    ("weights", "bias", "message"),
    [
        (value([[1, 2]]), value([1]), "input has 3 elements, not a multiple of 2"),
        (value([[1, 2, 3]]), value([1, 2]), r"bias has shape \[2\]; it must be \[1\]"),
    ],
)
def test_wrong_weights_fail_the_run(weights: Value, bias: Value, message: str) -> None:
    # declared without dimensions, otherwise the model is rejected
    inputs = [(tensor(F32), data) for _, data in (value([[1, 2, 3]]), weights, bias)]
    with pytest.raises(HalError, match=message):
        run(Op.FULLY_CONNECTED, [*inputs, int32(NONE)], [tensor(F32)])


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(st.integers(1, 3), max_size=2),
    size=st.tuples(*[st.integers(1, 6)] * 3),
    adjoint=st.tuples(st.booleans(), st.booleans()),
    quantized=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_product_agrees_with_litert(
    batches: list[int], size: tuple[int, ...], adjoint: tuple[bool, bool], quantized: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, inner, columns = size
    shapes = [(*batches, rows, inner), (*batches, inner, columns)]
    shapes = [(*batches, *shape[-2:][::-1]) if turned else shape for shape, turned in zip(shapes, adjoint, strict=True)]
    operands = [tensor(F32, shape) for shape in shapes]
    output = tensor(F32, (*batches, rows, columns))
    if quantized:
        operands = [tensor(INT8, shape, 0.05, int(rng.integers(-128, 128))) for shape in shapes]
        output = tensor(INT8, output.dimensions, 0.3, 7)
    inputs = [(operand, sample(rng, operand)) for operand in operands]
    ours = run(Op.BATCH_MATMUL, [*inputs, boolean(adjoint[0]), boolean(adjoint[1])], [output])[0]
    options = schema().BatchMatMulOptionsT()
    options.adjX, options.adjY = adjoint
    theirs = litert("BATCH_MATMUL", options, inputs, [output])[0]
    if quantized:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(*[st.integers(1, 9)] * 3),
    element=st.sampled_from([F32, T.TENSOR_QUANT8_ASYMM, INT8]),
    relu=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_fully_connected_agrees_with_litert(size: tuple[int, ...], element: T, relu: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, inner, units = size
    input_, weights, bias = tensor(F32, (rows, inner)), tensor(F32, (units, inner)), tensor(F32, (units,))
    output = tensor(F32, (rows, units))
    if element != F32:
        zero_points = rng.integers(0, 128, 2)  # LiteRT's signed weights must have zero point 0
        zero_point = 0 if element == INT8 else int(zero_points[0])
        input_ = tensor(element, input_.dimensions, 0.0487, int(zero_points[1]))
        weights = tensor(element, weights.dimensions, 0.0213, zero_point)
        bias = tensor(T.TENSOR_INT32, bias.dimensions, float(np.float32(0.0487) * np.float32(0.0213)))
        output = tensor(element, output.dimensions, 0.1, 9)
    inputs = [(operand, sample(rng, operand)) for operand in (input_, weights, bias)]
    ours = run(Op.FULLY_CONNECTED, [*inputs, int32(RELU if relu else NONE)], [output])[0]
    options = schema().FullyConnectedOptionsT()
    options.fusedActivationFunction = int(relu)
    theirs = litert("FULLY_CONNECTED", options, inputs, [output])[0]
    # LiteRT rounds once, CpuRef rounds twice
    np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=1e-5, atol=1e-5 if element == F32 else 1)
