"""Inputs of a model: from an image, from .npy or .npz files, or random ones."""

import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from nnhal.client.core.arrays import Inputs, ModelIO, TensorInfo
from nnhal.client.core.streams import StreamIO
from nnhal.errors import HalError
from nnhal.litert_extension import element_dtypes
from nnhal.tflite.model_metadata import TensorMetadata
from nnhal.types import DTYPES, AnyArray, Bytes, Model, Operand, OperandType, type_name
from nnhal_tools.cli.errors import CommandError, error_text

SEED = 0

PIXELS: dict[int, Callable[[Bytes], AnyArray]] = {
    OperandType.TENSOR_QUANT8_ASYMM: lambda pixels: pixels,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: lambda pixels: (pixels.astype(np.int16) - 128).astype(np.int8),
    OperandType.TENSOR_INT32: lambda pixels: pixels.astype(np.int32),
    OperandType.TENSOR_FLOAT32: lambda pixels: (pixels / 255).astype(np.float32),
}
"""Conversion of pixels 0..255 to elements of an input, by its operand type, without metadata."""

_NPY, _ZIP = b"\x93NUMPY", b"PK"
"""First bytes of a .npy file, and of a .npz archive."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's image mode by the number of channels."""


def read_inputs(
    model: Model, image: Path | None, files: Sequence[Path], metadata: Sequence[TensorMetadata] = ()
) -> list[AnyArray]:
    """Return the inputs that a command's options name: an image, arrays from files, or random ones.

    `files` are .npy files in the order of the inputs without states, or one .npz archive with the names of the inputs.

    Raises:
        CommandError: both are given, a file is unusable, or the arrays do not fit the model.
    """
    operands = input_operands(model)
    if image and files:
        raise CommandError("give --image or --input, not both")
    if image:
        return [read_image(image, operands, metadata[0] if len(metadata) == 1 else None)]
    if not files:
        return random_inputs(operands)
    names = [name for i, name in enumerate(model.input_names) if i not in _state_inputs(model)]
    try:  # the prepared model checks this again, but that is much later
        arrays = ModelIO(tuple(operands), (), tuple(names), ()).arrays(_read_files(files, names))
    except HalError as error:
        raise CommandError(error.reason) from error
    return [array for array in arrays if array is not None]


def _read_files(files: Sequence[Path], names: Sequence[str]) -> Inputs:
    archives = [path for path in files if _starts_with(path, _ZIP)]
    if not archives:
        return [read_array(path) for path in files]
    if len(files) > 1:
        raise CommandError(f"--input {archives[0]} is a .npz archive, which has all inputs; give no other --input")
    arrays = read_archive(archives[0])
    positions = [f"arr_{i}" for i in range(len(arrays))]  # the names that np.savez gives to arrays without a name
    if set(arrays) == set(positions) and not set(arrays) & set(names):
        return [arrays[position] for position in positions]
    return arrays


def input_operands(model: Model) -> list[TensorInfo]:
    """Return the operands of the model's inputs that are not states, in order."""
    operands = [model.main.operands[i] for i in model.main.input_indexes]
    inputs = TensorInfo.all_of(operands, model.input_names, element_dtypes(model.extension_name_to_prefix))
    states = _state_inputs(model)
    return [operand for i, operand in enumerate(inputs) if i not in states]


def with_initial_states(model: Model, arrays: Sequence[AnyArray]) -> list[AnyArray]:
    """Return all inputs of a model: those that are not states, and the initial states."""
    if not model.states:
        return list(arrays)
    operands = tuple(model.main.operands[i] for i in model.main.input_indexes)
    io = StreamIO(ModelIO(operands, (), model.input_names, ()), model.states)
    return [np.asarray(value) for value in io.with_states(list(arrays), io.initial)]


def _state_inputs(model: Model) -> set[int]:
    return {state.input_index for state in model.states}


def read_image(path: Path, operands: Sequence[Operand], metadata: TensorMetadata | None = None) -> AnyArray:
    """Return an image as the only input of a model. The metadata has the normalization of float32 elements.

    Returns:
        the image, resized with bilinear filtering to the input's [1,H,W,C], in its dtype.

    Raises:
        CommandError: the model does not take an image, or the file is not an image.
    """
    if len(operands) != 1 or not _takes_image(operands[0]):
        inputs = ", ".join(f"{type_name(o.type)} {list(o.dimensions)}" for o in operands)
        raise CommandError(f"--image needs a model with one input [1,H,W,1] or [1,H,W,3]; this one takes {inputs}")
    _, height, width, channels = operands[0].dimensions
    pixels = _read_pixels(path, width, height, MODES[channels]).reshape(1, height, width, channels)
    if normalization := _normalization(operands[0], metadata):
        mean, std = normalization
        return np.asarray((pixels - np.array(mean)) / np.array(std)).astype(np.float32)
    return PIXELS[operands[0].type](pixels)


def describe_image(operand: Operand, metadata: TensorMetadata | None) -> str:
    """Return how pixels become elements of an input, as text."""
    _, height, width, _ = operand.dimensions
    size = f"resized to {width}x{height}"
    if normalization := _normalization(operand, metadata):
        mean, std = (f"{v[0]:g}" if len(set(v)) == 1 else f"[{', '.join(f'{x:g}' for x in v)}]" for v in normalization)
        return f"{size}, (pixels - {mean}) / {std}, from the metadata"
    if operand.type == OperandType.TENSOR_FLOAT32:
        return f"{size}, pixels / 255; the file does not tell another normalization"
    return f"{size}, pixels - 128" if operand.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED else size


def _normalization(
    operand: Operand, metadata: TensorMetadata | None
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and standard deviation, if the metadata has valid ones and the input is not quantized."""
    if metadata is None or operand.type != OperandType.TENSOR_FLOAT32:
        return None
    mean, std = metadata.mean, metadata.std
    has_valid_lengths = {len(mean), len(std)} <= {1, operand.dimensions[3]}
    is_valid = has_valid_lengths and all(np.isfinite([*mean, *std])) and 0 not in std
    return (mean, std) if is_valid else None


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
                found = "it has another format" if start else "the file is empty"
                raise CommandError(f"cannot read {path}: {found}; expected a .npy file or a .npz archive")
            file.seek(0)
            return _parse_array(file, str(path))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error


def read_archive(path: Path) -> Mapping[str, AnyArray]:
    """Return the arrays of a .npz archive by name, in the byte order of this machine.

    Raises:
        CommandError: the file is unreadable or damaged, or has other files than arrays of numbers.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    arrays[member.removesuffix(".npy")] = _parse_array(file, f"{member} in {path}")
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
        raise CommandError(f"cannot read {path}: the archive is damaged or encrypted") from error
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error
    return arrays


def _parse_array(file: IO[bytes], name: str) -> AnyArray:
    try:
        array: AnyArray = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        if "allow_pickle" in str(error):
            raise CommandError(f"cannot read {name}: it has Python objects; expected numbers") from None
        raise CommandError(f"cannot read {name}: the file is damaged or truncated") from error
    if array.dtype.kind not in "biuf":
        raise CommandError(f"cannot read {name}: its elements are {array.dtype}; expected numbers")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _starts_with(path: Path, signature: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(signature)) == signature
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error


def random_inputs(operands: Sequence[Operand]) -> list[AnyArray]:
    """Return random inputs, the same in every run.

    Floats are in 0..1, 8-bit integers cover their whole range, other integers are 0 or 1. An unknown dimension is 1.
    """
    generator = np.random.default_rng(SEED)
    return [_random_array(generator, _dtype(o), tuple(d or 1 for d in o.dimensions)) for o in operands]


def _dtype(operand: Operand) -> np.dtype[np.generic]:
    return (isinstance(operand, TensorInfo) and operand.dtype) or DTYPES[operand.type]


def _random_array(generator: np.random.Generator, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> AnyArray:
    if dtype.kind == "f":
        return np.asarray(generator.random(shape)).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        lowest = 0 if dtype.kind == "u" else -128
        return np.asarray(generator.integers(lowest, lowest + 256, shape)).astype(dtype)
    return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
