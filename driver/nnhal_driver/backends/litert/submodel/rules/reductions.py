"""Operators that reduce dimensions, sort, or accumulate along a dimension."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, elements, rule, scale


def _reduce(op: OperatorCheck, max_rank: int = 8) -> int:
    """Check the axes of a reduction, and return the number of elements per output element."""
    shape = op.shape(0, low=1, high=max_rank)
    value = op.constant(1)
    op.require(value.ndim <= 1, f"input 1 has shape {list(value.shape)}; expected [n]")
    op.require(value.size <= len(shape), f"input 1 has {value.size} axes; input 0 has rank {len(shape)}")
    axes = {op.axis("axis", axis, len(shape)) for axis in value.reshape(-1).tolist()}
    return elements([shape[axis] for axis in axes])


@rule("MEAN", "SUM", types=["T:f32|f16|i8|u8|i16|i32|i64 i32 -> T"], options="ReducerOptions")
def average(op: OperatorCheck) -> None:
    """Check a mean or a sum. Quantized sums are int32."""
    count = _reduce(op)
    if op.is_quantized:
        op.require(count <= 2**15, f"{count} elements are summed up; at most {2**15} are supported")
        ratio = scale(op.input(0)) / scale(op.outputs[0])
        op.multiplier("input scale / output scale", ratio, 2.0**-20, 2.0**8)


@rule("REDUCE_PROD", types=["T:f32|i8|i16|i32|i64 i32 -> T"], options="ReducerOptions")
@rule("REDUCE_ANY", "REDUCE_ALL", types=["bool i32 -> bool"], options="ReducerOptions")
def reduce(op: OperatorCheck) -> None:
    """Check a product or a logical operation."""
    _reduce(op)


@rule("REDUCE_MAX", "REDUCE_MIN", types=["T:f32|f16|i8|u8|i16|i32|i64 i32 -> T"], options="ReducerOptions")
def extreme(op: OperatorCheck) -> None:
    """Check a maximum or minimum."""
    _reduce(op)


@rule("ARG_MAX", types=["f32|i8|u8|i32|bool i32|i64 -> i32|i64"], options="ArgMaxOptions", quantized=False)
@rule("ARG_MIN", types=["f32|i8|u8|i32|bool i32|i64 -> i32|i64"], options="ArgMinOptions", quantized=False)
def arg_extreme(op: OperatorCheck) -> None:
    """Check the index of a maximum or minimum."""
    shape = op.shape(0, low=1)
    expected = {"INT32": 2, "INT64": 4}[op.outputs[0].type]
    op.require_range("output_type", op.option("output_type"), expected, expected)
    op.axis("axis", op.integer(1), len(shape))


@rule(
    "TOPK_V2",
    types=["T:f32|i8|u8|i16|i32|i64 i16|i32 -> T i16|i32"],
    options="TopKV2Options",
    optional_options=True,
    quantized=False,
)
def top_k(op: OperatorCheck) -> None:
    """Check the largest elements of each row."""
    shape = op.shape(0, low=1)
    op.input_shape(1, ())
    count = op.integer(1)
    op.require_range("k", count, 1, shape[-1])
    op.work += op.input(0).elements * 16


@rule("CUMSUM", types=["T:f32|i32|i64 i32 -> T"], options="CumsumOptions")
def cumulate(op: OperatorCheck) -> None:
    """Check a cumulative sum."""
    shape = op.shape(0, low=1)
    op.axis("axis", op.integer(1), len(shape))
