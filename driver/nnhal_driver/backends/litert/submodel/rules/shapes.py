"""Operators that change the shape of a tensor and keep the order of its elements, and that read shapes."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, elements, rule

ANY = "f32|f16|f64|i8|u8|i16|u16|i32|u32|i64|bool"
"""Types of operators that only move elements."""


@rule("RESHAPE", types=[f"T:{ANY}|c64 i32? -> T"], options="ReshapeOptions", optional_options=True, quantized=False)
def reshape(op: OperatorCheck) -> None:
    """Check a reshape. The shape is the constant input 1, otherwise the option."""
    if op.optional(1) is not None:
        shape = op.integers(1)
    elif op.operator.options.get("new_shape") is not None:
        shape = list(op.shape_option("new_shape"))
    else:
        op.fail("new_shape is missing, and so is input 1")
    size = op.input(0).elements
    op.require(shape.count(-1) <= 1 and all(d >= 1 or d == -1 for d in shape), f"new_shape is {shape}")
    known = elements([d for d in shape if d != -1])
    op.require(
        size % known == 0 if -1 in shape else size == known, f"new_shape is {shape}; input 0 has {size} elements"
    )


@rule("SQUEEZE", types=[f"T:{ANY}|c64 -> T"], options="SqueezeOptions", optional_options=True, quantized=False)
def squeeze(op: OperatorCheck) -> None:
    """Check the removal of dimensions of 1: those in the option, or all."""
    shape = op.input(0).shape
    axes = op.shape_option("squeeze_dims") if op.operator.options.get("squeeze_dims") else ()
    op.require(len(axes) <= 8, f"squeeze_dims has {len(axes)} elements; expected at most 8")
    removed = {op.axis("squeeze_dims", axis, len(shape)) for axis in axes}
    op.require(all(shape[axis] == 1 for axis in removed), f"squeeze_dims is {list(axes)}; input 0 has {list(shape)}")


@rule(
    "EXPAND_DIMS",
    types=[f"T:{ANY}|c64 i32|i64 -> T"],
    options="ExpandDimsOptions",
    optional_options=True,
    quantized=False,
)
def expand_dims(op: OperatorCheck) -> None:
    """Check the insertion of a dimension."""
    op.axis("axis", op.integer(1), len(op.input(0).shape) + 1)


@rule("SHAPE", types=[f"{ANY} -> i32|i64"], options="ShapeOptions", quantized=False)
def shape_of(op: OperatorCheck) -> None:
    """Check the shape of a tensor as a value."""
    expected = {"INT32": 2, "INT64": 4}[op.outputs[0].type]
    op.require_range("out_type", op.option("out_type"), expected, expected)
    op.shape(0, low=1)


@rule("RANK", types=[f"{ANY} -> i32"], options="RankOptions", optional_options=True, quantized=False)
def rank(op: OperatorCheck) -> None:
    """Accept the rank of a tensor as a value."""


@rule("TRANSPOSE", types=[f"T:{ANY} i32 -> T"], options="TransposeOptions", optional_options=True, quantized=False)
def transpose(op: OperatorCheck) -> None:
    """Check a permutation of dimensions."""
    shape = op.shape(0, low=1, high=6)
    order = op.integers(1, len(shape)) if len(shape) > 1 else [op.integer(1)]
    order = [op.axis("an axis of input 1", axis, len(shape)) for axis in order]
    op.require(sorted(order) == list(range(len(shape))), f"input 1 is {order}; expected a permutation")


@rule(
    "BROADCAST_TO",
    types=[f"T:{ANY} i32|i64 -> T"],
    options="BroadcastToOptions",
    optional_options=True,
    quantized=False,
)
def broadcast_to(op: OperatorCheck) -> None:
    """Check a broadcast to a constant shape."""
    shape, result = op.input(0).shape, op.integers(1)
    aligned = (1,) * (len(result) - len(shape)) + shape
    op.require(
        len(shape) <= len(result) and all(a in (1, b) for a, b in zip(aligned, result, strict=True)),
        f"shape {list(shape)} does not broadcast to {result}",
    )


@rule("BROADCAST_ARGS", types=["T:i32|i64 T -> T"], quantized=False)
def broadcast_args(op: OperatorCheck) -> None:
    """Check the computation of a broadcast shape. The kernel aborts if there is none."""
    shapes = [op.integers(0), op.integers(1)]
    op.require(min(min(shape) for shape in shapes) >= 1, f"inputs are {shapes}; expected at least 1")


@rule("FILL", types=[f"i32|i64 T:{ANY} -> T"], options="FillOptions", optional_options=True, quantized=False)
def fill(op: OperatorCheck) -> None:
    """Check a tensor of one value."""
    op.require(not op.input(1).shape, f"input 1 has shape {list(op.input(1).shape)}; expected []")
    op.integers(0)


@rule("RANGE", types=["T:i32|i64|f32 T T -> T"], options="RangeOptions", optional_options=True, quantized=False)
def range_(op: OperatorCheck) -> None:
    """Check an arithmetic sequence with constant limits."""
    start, limit, delta = (op.constant(index) for index in range(3))
    for index in range(3):
        op.input_shape(index, ())
    first, last, step = (value.item() for value in (start, limit, delta))
    op.require(step and (last - first) * step > 0, f"start {first}, limit {last} and delta {step} give no elements")
    op.require(abs(last - first) < 2**31 * abs(step), f"start {first}, limit {last} and delta {step} give too many")
    length = -(-(last - first) // step)
    op.output_shape([int(length)])
