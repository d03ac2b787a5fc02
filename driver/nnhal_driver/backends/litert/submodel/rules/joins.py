"""Operators that join and split tensors."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, rule, scale
from nnhal_driver.backends.litert.submodel.rules.shapes import ANY


@rule("CONCATENATION", types=[f"T:{ANY} T* -> T"], options="ConcatenationOptions", quantized=False)
def concatenate(op: OperatorCheck) -> None:
    """Check a concatenation."""
    op.activation()
    shape = op.shape(0, low=1)
    axis = op.axis("axis", op.option("axis"), len(shape))
    for index in range(1, len(op.inputs)):
        other = op.input(index).shape
        expected = [*shape[:axis], other[axis] if len(other) == len(shape) else 0, *shape[axis + 1 :]]
        op.input_shape(index, expected)
    tensors = [*(op.input(index) for index in range(len(op.inputs))), op.outputs[0]]
    if op.is_quantized and any(tensor.quantization for tensor in tensors):
        op.require(all(tensor.quantization for tensor in tensors), "some tensors have a scale and others have none")
        if op.outputs[0].type == "UINT8":
            for index, tensor in enumerate(tensors[:-1]):
                ratio = scale(tensor) / scale(op.outputs[0])
                op.multiplier(f"scale of input {index} / output scale", ratio, high=2.0**20)


@rule("PACK", types=[f"T:{ANY} T* -> T"], options="PackOptions", quantized=False)
def pack(op: OperatorCheck) -> None:
    """Check the stack of tensors along a new dimension."""
    shape = op.shape(0, high=5)
    op.require_range("values_count", op.option("values_count"), len(op.inputs), len(op.inputs))
    for index in range(1, len(op.inputs)):
        op.input_shape(index, shape)
    op.axis("axis", op.option("axis"), len(shape) + 1)
    op.same_quantization(*(op.input(index) for index in range(len(op.inputs))), op.outputs[0])


@rule("UNPACK", types=[f"T:{ANY} -> T*"], options="UnpackOptions", quantized=False)
def unpack(op: OperatorCheck) -> None:
    """Check the parts of a tensor along a dimension."""
    shape = op.shape(0, low=1, high=5)
    count = shape[op.axis("axis", op.option("axis"), len(shape))]
    op.require(op.option("num") == count == len(op.outputs), f"num is {op.option('num')}; expected {count}, as outputs")


@rule("SPLIT", types=[f"i32 T:{ANY} -> T*"], options="SplitOptions", quantized=False)
def split(op: OperatorCheck) -> None:
    """Check the division of a tensor into equal parts."""
    shape = op.shape(1, low=1)
    axis = op.axis("axis", op.integer(0), len(shape))
    count = op.option("num_splits")
    op.require(count == len(op.outputs), f"num_splits is {count}; there are {len(op.outputs)} outputs")
    op.require(shape[axis] % count == 0, f"num_splits is {count}; dimension {axis} has {shape[axis]}")


@rule("SPLIT_V", types=[f"T:{ANY} i32|i64 i32 -> T*"], options="SplitVOptions", quantized=False)
def split_v(op: OperatorCheck) -> None:
    """Check the division of a tensor into parts of constant sizes."""
    shape = op.shape(0, low=1)
    axis = op.axis("axis", op.integer(2), len(shape))
    sizes = op.integers(1, len(op.outputs)) if len(op.outputs) > 1 else [op.integer(1)]
    op.require(op.option("num_splits") == len(sizes), f"num_splits is {op.option('num_splits')}; expected {len(sizes)}")
    op.require(sizes.count(-1) <= 1 and all(size >= 1 or size == -1 for size in sizes), f"input 1 is {sizes}")
    if -1 in sizes:
        sizes[sizes.index(-1)] = shape[axis] - sum(size for size in sizes if size != -1)
    op.require(
        sum(sizes) == shape[axis] and min(sizes) >= 1, f"input 1 sums up to {sum(sizes)}; expected {shape[axis]}"
    )


@rule("TILE", types=[f"T:{ANY} i32|i64 -> T"], options="TileOptions", optional_options=True, quantized=False)
def tile(op: OperatorCheck) -> None:
    """Check the repetition of a tensor."""
    shape = op.shape(0, low=1)
    counts = op.integers(1, len(shape)) if len(shape) > 1 else [op.integer(1)]
    op.require(min(counts) >= 1, f"input 1 is {counts}; expected at least 1")


@rule(
    "DYNAMIC_UPDATE_SLICE",
    types=[f"T:{ANY} T i32|i64 -> T"],
    options="DynamicUpdateSliceOptions",
    quantized=False,
    optional_options=True,
)
def dynamic_update_slice(op: OperatorCheck) -> None:
    """Check the replacement of a part of a tensor. The kernel moves starts that are out of range."""
    shape, update = op.shape(0, low=1), op.input(1).shape
    op.input_shape(2, [len(shape)])
    op.require(
        len(update) == len(shape) and all(u <= s for u, s in zip(update, shape, strict=True)),
        f"input 1 has shape {list(update)}; expected at most {list(shape)}",
    )
