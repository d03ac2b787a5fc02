"""Padding of windows: by one of the engine's padding schemes, or by a separate operator."""

from nnhal_driver.backends.litert.limits import check_steps
from nnhal_driver.backends.litert.lowering import Lowering
from nnhal_driver.operations.geometry import Window, same_padding

PADDINGS = {"SAME": 0, "VALID": 1}
"""Numbers of TFLite's padding schemes."""


def padding_scheme(space: Window) -> str | None:
    """Return the engine's scheme that pads like a window, or None.

    Raises:
        Unsupported: the window or its steps are too large.
    """
    axes = (space.height, space.width)
    check_steps(*(n for axis in axes for n in (axis.stride, axis.size)))
    if not any(axis.before or axis.after for axis in axes):
        return "VALID"
    if all((axis.before, axis.after) == same_padding(axis.input, axis.size, axis.stride) for axis in axes):
        return "SAME"
    return None


def pad_image(lower: Lowering, image: int, space: Window, value: int | None = None) -> int:
    """Pad an image, NHWC, with real 0, or with the tensor `value`."""
    pads = space.paddings
    shape = [size + sum(pad) for size, pad in zip(lower.writer.shapes[image], pads, strict=True)]
    out = lower.writer.tensor(lower.writer.specs[image], shape)
    values = [] if value is None else [value]
    lower.emit("PADV2" if values else "PAD", [image, lower.constant(pads), *values], [out])
    return out
