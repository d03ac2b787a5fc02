"""Memory that kernels of the engine need besides their tensors.

For each pixel of an output, XNNPACK keeps the addresses of the pixels under the filter, for as long as an interpreter
lives: 968 bytes for a filter of 11 x 11, however few channels there are. The engine's own kernels, which run if the
filter is not constant, copy these pixels instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from nnhal.tflite_schema.packing import Fields
from nnhal_driver.operations.call import Shape

_ADDRESS_BYTES = 8
_WEIGHTS_BYTES = 8
"""Weights of the four neighbors of a pixel."""


@dataclass(frozen=True, slots=True)
class KernelShapes:
    """Shapes and options of an operator.

    Attributes:
        inputs: shapes of the inputs. Images are [batches, height, width, channels].
        output: shape of the first output.
        fields: options by their names in the schema.
        item_bytes: bytes of an element of the output.
        is_constant: whether the second input, the filter of a convolution, is constant.
    """

    inputs: Sequence[Shape]
    output: Shape
    fields: Fields
    item_bytes: int
    is_constant: bool

    def field(self, name: str) -> int:
        """Return an option, or 1 if it is absent."""
        value = self.fields.get(name)
        return value if isinstance(value, int) and value else 1

    @property
    def pixels(self) -> int:
        """Pixels of an image of the output."""
        return prod(self.output[1:3])


KERNELS: dict[str, Callable[[KernelShapes], int]] = {}
"""Functions that return the bytes of an operator, by its name in the schema. All others need little."""


def kernel(name: str) -> Callable[[Callable[[KernelShapes], int]], Callable[[KernelShapes], int]]:
    """Register the memory of an operator."""

    def register(function: Callable[[KernelShapes], int]) -> Callable[[KernelShapes], int]:
        KERNELS[name] = function
        return function

    return register


def _addresses(count: int, pixels: int) -> int:
    """Return the bytes of the addresses of `count` pixels for each pixel of an output."""
    return _ADDRESS_BYTES * count * pixels if count > 1 else 0


@kernel("CONV_2D")
def convolution(each: KernelShapes) -> int:
    """Return the bytes for a filter [depth_out, height, width, depth_in]."""
    _, height, width, depth = each.inputs[1]
    if each.is_constant:
        return _addresses(height * width, each.pixels)
    # copied once, and once more by kernels of quantized values
    return max(each.item_bytes, 2) * height * width * depth * prod(each.output[:3])


@kernel("DEPTHWISE_CONV_2D")
def depthwise_convolution(each: KernelShapes) -> int:
    """Return the bytes for a filter [1, height, width, depth_out]."""
    return _addresses(prod(each.inputs[1][1:3]), each.pixels) if each.is_constant else 0


@kernel("TRANSPOSE_CONV")
def transposed_convolution(each: KernelShapes) -> int:
    """Return the bytes for the shape of the output, a filter [depth_out, height, width, depth_in], and the image."""
    depth, height, width, _ = each.inputs[1]
    if each.is_constant:
        return _addresses(-(-height // each.field("stride_h")) * -(-width // each.field("stride_w")), each.pixels)
    return 4 * height * width * depth * prod(each.inputs[2][1:3])  # sums of 32 bits


@kernel("MAX_POOL_2D")
def max_pooling(each: KernelShapes) -> int:
    """Return the bytes for a window, whose columns neighbors share."""
    height, width = each.field("filter_height"), each.field("filter_width")
    of_row = height * width + height * min(width, each.field("stride_w")) * each.output[2]
    return _ADDRESS_BYTES * of_row * each.output[1] if height * width > 1 else 0


@kernel("RESIZE_BILINEAR")
def bilinear_resizing(each: KernelShapes) -> int:
    """Return the bytes for the four neighbors of each pixel."""
    return (4 * _ADDRESS_BYTES + _WEIGHTS_BYTES) * each.pixels
