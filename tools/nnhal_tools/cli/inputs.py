"""Inputs of a model: from an image, from .npy files, or random ones."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nnhal.client.core.arrays import ModelIO
from nnhal.errors import HalError
from nnhal.types import DTYPES, AnyArray, Bytes, Model, Operand, OperandType, type_name
from nnhal_tools.cli.errors import CommandError, error_text

SEED = 0

PIXELS: dict[int, Callable[[Bytes], AnyArray]] = {
    OperandType.TENSOR_QUANT8_ASYMM: lambda pixels: pixels,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: lambda pixels: (pixels.astype(np.int16) - 128).astype(np.int8),
    OperandType.TENSOR_FLOAT32: lambda pixels: (pixels / 255).astype(np.float32),
}
"""Conversion of pixels 0..255 to elements of an input, by its operand type."""

_NPY = b"\x93NUMPY"
"""First bytes of a .npy file."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's image mode by the number of channels."""


def read_inputs(model: Model, image: Path | None, files: Sequence[Path]) -> list[AnyArray]:
    """Return the inputs that a command's options name: an image, arrays from .npy files, or random ones.

    Raises:
        CommandError: both are given, a file is unusable, or the arrays do not fit the model.
    """
    operands = input_operands(model)
    if image and files:
        raise CommandError("give --image or --input, not both")
    if image:
        return [read_image(image, operands)]
    if not files:
        return random_inputs(operands)
    arrays = [read_array(path) for path in files]
    try:  # the prepared model checks this again, but that is much later
        ModelIO(tuple(operands), (), model.input_names, ()).arrays(arrays)
    except HalError as error:
        raise CommandError(error.reason) from error
    return arrays


def input_operands(model: Model) -> list[Operand]:
    """Return the operands of the model's inputs, in order."""
    return [model.main.operands[i] for i in model.main.input_indexes]


def read_image(path: Path, operands: Sequence[Operand]) -> AnyArray:
    """Return an image as the only input of a model.

    Args:
        path: the image file.
        operands: the operands of the model's inputs.

    Returns:
        the image, resized with bilinear filtering to the input's [1,H,W,C], in its dtype.

    Raises:
        CommandError: the model does not take an image, or the file is not an image.
    """
    if len(operands) != 1 or not _takes_image(operands[0]):
        inputs = ", ".join(f"{type_name(o.type)} {list(o.dimensions)}" for o in operands)
        raise CommandError(f"--image needs a model with one input [1,H,W,1] or [1,H,W,3]; this one takes {inputs}")
    _, height, width, channels = operands[0].dimensions
    pixels = _read_pixels(path, width, height, MODES[channels])
    return PIXELS[operands[0].type](pixels.reshape(1, height, width, channels))


def _takes_image(operand: Operand) -> bool:
    match operand.dimensions:
        case (1, height, width, channels):
            return height > 0 and width > 0 and channels in MODES and operand.type in PIXELS
    return False


def _read_pixels(path: Path, width: int, height: int, mode: str) -> Bytes:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            resized = image.convert(mode).resize((width, height), Image.Resampling.BILINEAR)
    except UnidentifiedImageError:
        raise CommandError(f"cannot read the image {path}: unknown image format") from None
    # a damaged file raises one of these, depending on its format
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CommandError(f"cannot read the image {path}: {error_text(error)}") from error
    return np.asarray(resized, np.uint8)


def read_array(path: Path) -> AnyArray:
    """Return the numbers of a .npy file, in the byte order of this machine.

    Raises:
        CommandError: the file is unreadable, is not a .npy file, or has no numbers.
    """
    try:
        with path.open("rb") as file:
            if (start := file.read(len(_NPY))) != _NPY:
                raise CommandError(f"cannot read {path}: {_describe_start(start)}; expected a .npy file")
            file.seek(0)
            array: AnyArray = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error
    except (ValueError, EOFError) as error:
        if "allow_pickle" in str(error):
            raise CommandError(f"cannot read {path}: it has Python objects; expected numbers") from None
        raise CommandError(f"cannot read {path}: the file is damaged or truncated") from error
    if array.dtype.kind not in "biuf":
        raise CommandError(f"cannot read {path}: its elements are {array.dtype}; expected numbers")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _describe_start(start: bytes) -> str:
    """Say what a file is whose first bytes are not those of a .npy file."""
    if not start:
        return "the file is empty"
    return "it is a .npz archive of several arrays" if start.startswith(b"PK") else "it has another format"


def random_inputs(operands: Sequence[Operand]) -> list[AnyArray]:
    """Return random inputs, the same in every run.

    Floats are in 0..1, 8-bit integers cover their whole range, other integers are 0 or 1. An unknown dimension is 1.
    """
    generator = np.random.default_rng(SEED)
    return [_random_array(generator, DTYPES[o.type], tuple(d or 1 for d in o.dimensions)) for o in operands]


def _random_array(generator: np.random.Generator, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> AnyArray:
    if dtype.kind == "f":
        return np.asarray(generator.random(shape)).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        lowest = 0 if dtype.kind == "u" else -128
        return np.asarray(generator.integers(lowest, lowest + 256, shape)).astype(dtype)
    return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
