"""Registration of kernels, and functions that kernels share.

    @kernel(OperationType.RESHAPE)
    def reshape(call: OperationCall) -> AnyArray:
        return call.array("input").reshape(...)

A kernel returns its output, or a list of outputs, in the dtype of the declared type. The shape rule has checked the
arguments, so the kernel need not check them again. Kernels never write to their inputs. Infinities and NaN are valid
results: numpy does not warn about them while a kernel runs.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from nnhal.types import DTYPES, AnyArray, OperandType
from nnhal_driver.backends.division import Region, blocks, look_up, plain
from nnhal_driver.backends.per_operation import Workload
from nnhal_driver.backends.reference.numerics.fixed_point import FLOAT_BOUNDS
from nnhal_driver.operations.call import OperationCall, Shape

Floats = NDArray[np.float32]

KERNELS: dict[int, Workload] = {}
"""Every registered kernel, by operation type."""
RANDOM: set[int] = set()
"""Operation types whose results may differ between two runs with the same inputs."""

_COPY_COST = 8
"""Cost of a row or column of a product, apart from its depth. It is that of thin matrices."""
_TILE = 2**27
"""Multiply-adds between two checks of a run. numpy computes them in some tens of milliseconds."""


def kernel(*types: int, random: bool = False) -> Callable[[Workload], Workload]:
    """Register the kernel of operation types. `random`: results may differ between runs with the same inputs."""

    def register(function: Workload) -> Workload:
        @np.errstate(all="ignore")
        def run(call: OperationCall) -> AnyArray | Sequence[AnyArray]:
            result = function(call)
            whole: AnyArray | Sequence[AnyArray] = result if type(result) is np.ndarray else plain(result)
            return whole

        for type_ in types:
            assert type_ not in KERNELS, f"operation type {type_} has two kernels"
            KERNELS[type_] = run
            if random:
                RANDOM.add(type_)
        return function

    return register


def is_quantized(call: OperationCall, name: str) -> bool:
    """Return whether an argument holds 8-bit or 16-bit quantized values. A scale of TENSOR_INT32 is ignored."""
    operand = call.operand(name)
    return operand.type != OperandType.TENSOR_INT32 and (operand.scale != 0 or call.channel_quant(name) is not None)


def input_as_nhwc(call: OperationCall) -> AnyArray:
    """Return the input image of either layout as [batches, height, width, channels]."""
    image = call.array("input")
    return image.transpose(0, 2, 3, 1) if call.flag("layout") else image


def to_layout(call: OperationCall, image: AnyArray) -> AnyArray:
    """Convert an image [batches, height, width, channels] to the layout of the operation."""
    return image.transpose(0, 3, 1, 2).copy() if call.flag("layout") else image


def pad_array(array: AnyArray, pairs: Sequence[Sequence[int]], fill: float | AnyArray) -> AnyArray:
    """Return an array with `fill` before and after each dimension. np.pad takes 20 times as long for small ones."""
    sizes = list(zip(array.shape, pairs, strict=True))
    out = np.empty_like(array, order="C", shape=[before + length + after for length, (before, after) in sizes])
    out[...] = fill
    out[tuple(slice(before, before + length) for length, (before, _) in sizes)] = array
    return out


def as_float32(call: OperationCall, name: str) -> Floats:
    """Return a float argument as float32."""
    return call.array(name).astype(np.float32, copy=False)


def apply_activation(call: OperationCall, value: Floats) -> AnyArray:
    """Apply the fused activation, and convert to the output's type. `value` is overwritten."""
    value.clip(*FLOAT_BOUNDS[call.activation()], out=value)
    return to_output_type(call, value)


def to_output_type(call: OperationCall, value: Floats, like: str = "output") -> AnyArray:
    """Convert a float32 result to the type of the argument `like`. Overflow of float16 gives infinity."""
    return value.astype(DTYPES[call.operand(like).type], copy=False)


def map_8bit(call: OperationCall, name: str, function: Callable[[AnyArray], AnyArray]) -> AnyArray:
    """Apply `function` to each stored 8-bit value of an argument, by a table of all 256 values.

    The result of `function` may depend only on the value and the quantization of the operands.
    """
    stored = call.array(name)
    table = call.memoize_constant(
        f"table of {name}", lambda: function(np.arange(256, dtype=np.uint8).view(stored.dtype))
    )
    return look_up(table, stored.view(np.uint8))


def tiles(call: OperationCall, shape: Shape, cost: int) -> Iterator[Region]:
    """Yield the regions of tiles of a shape, and check before each whether the run must end.

    The cost of an element is in multiply-adds, or as long work.
    """
    for region in blocks(shape, limit=max(1, _TILE // max(1, cost))):
        call.check()
        yield region


def matrix_product(call: OperationCall, a: AnyArray, b: AnyArray) -> AnyArray:
    """Return a @ b, matrix by matrix, for arrays with the same batch dimensions, or one matrix b.

    Large products are made of tiles.
    """
    *batch, rows, depth = a.shape
    columns = b.shape[-1]
    cost = rows * (depth + _COPY_COST) * (columns + _COPY_COST)
    if prod(batch) * cost <= _TILE:
        return a @ b
    if b.ndim < a.ndim:
        return matrix_product(call, a.reshape(-1, depth), b).reshape(*batch, rows, columns)
    first, second = a.reshape(-1, rows, depth), b.reshape(-1, depth, columns)
    out = np.empty_like(first, np.result_type(a, b), order="C", shape=(len(first), rows, columns))
    for (matrices,) in tiles(call, (len(first),), cost):
        if cost <= _TILE:
            np.matmul(first[matrices], second[matrices], out=out[matrices])
            continue
        (i,) = range(len(first))[matrices]
        for (part,) in tiles(call, (rows,), cost // rows):
            np.matmul(first[i, part], second[i], out=out[i, part])
    return out.reshape(*batch, rows, columns)
