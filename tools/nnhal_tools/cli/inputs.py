"""Inputs of a model: from an image, from .npy or .npz files, or random ones."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from nnhal.client.core.arrays import Inputs, ModelIO, TensorInfo
from nnhal.client.core.streams import StreamIO
from nnhal.client.elements import image_layout, valid_normalization
from nnhal.errors import HalError
from nnhal.litert_extension import element_dtypes
from nnhal.types import DTYPES, AnyArray, Model, Operand, OperandType, type_name
from nnhal_tools.batch.wav import read_wav
from nnhal_tools.cli.errors import CommandError, error_text

SEED = 0
SAMPLE_RATE = 16_000
"""Samples per second of the sounds that models take whose file does not tell another rate."""

_NPY, _ZIP = b"\x93NUMPY", b"PK"
"""First bytes of a .npy file, and of a .npz archive."""


def read_inputs(model: Model, image: Path | None, files: Sequence[Path]) -> list[AnyArray]:
    """Return the inputs that a command's options name: an image, arrays from files, or random ones.

    `files` are .npy files in the order of the inputs without states, or one .npz archive with the names of the inputs.

    Raises:
        CommandError: both are given, a file is unusable, or the arrays do not fit the model.
    """
    if image and files:
        raise CommandError("give --image or --input, not both")
    if image:
        return [read_image(image, input_operands(model))]
    return check_inputs(model, files) if files else random_inputs(input_operands(model))


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return files in order, each once. A folder stands for its images, sounds and arrays, by name.

    Raises:
        CommandError: a folder has none of these.
    """
    found: dict[Path, None] = {}
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.is_file() and _has_known_suffix(file))
            if not files:
                raise CommandError(f"there are no images, sounds (.wav) or arrays (.npy, .npz) in {path}")
        found |= dict.fromkeys(files)
    return list(found)


def _has_known_suffix(path: Path) -> bool:
    from PIL import Image

    return path.suffix.lower() in {".wav", ".npy", ".npz", *Image.registered_extensions()}


def kind_of(path: Path) -> str:
    """Return what a file has by its name: "sound", "arrays", or otherwise "image"."""
    return {".wav": "sound", ".npy": "arrays", ".npz": "arrays"}.get(path.suffix.lower(), "image")


def read_file(model: Model, path: Path, rate: int) -> list[list[AnyArray]]:
    """Return the inputs in a file, for each execution: an image, arrays, or the windows of a sound of a rate in Hz.

    Raises:
        CommandError: the file is unusable, or it does not fit the model.
    """
    match kind_of(path):
        case "sound":
            return [[window] for window in read_sound(path, input_operands(model), rate)]
        case "arrays":
            return [check_inputs(model, [path])]
    return [[read_image(path, input_operands(model))]]


def check_inputs(model: Model, files: Sequence[Path]) -> list[AnyArray]:
    """Return the arrays of files as inputs of a model. Numbers of another type are converted if no value changes.

    Raises:
        CommandError: a file is unusable, or the arrays do not fit the model.
    """
    operands, states = input_operands(model), _state_inputs(model)
    names = [name for i, name in enumerate(model.input_names) if i not in states]
    io = ModelIO(tuple(operands), (), tuple(names), ())
    try:  # the prepared model checks this again, but that is much later
        values = io.by_position(_read_files(files, names))
        arrays = io.arrays([_convert(value, operand) for value, operand in zip(values, operands, strict=True)])
    except HalError as error:
        raise CommandError(error.reason) from error
    return [array for array in arrays if array is not None]


def _convert(value: object, operand: TensorInfo) -> AnyArray:
    """Return an array in the type of an operand if that keeps its values: float64 as float32, int64 as int32."""
    array = np.asarray(value)
    if operand.dtype is None or array.dtype == operand.dtype:
        return array
    with np.errstate(all="ignore"):
        converted = array.astype(operand.dtype)
    is_same = array.dtype.kind == operand.dtype.kind == "f" or np.array_equal(converted.astype(array.dtype), array)
    return converted if is_same else array


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
    inputs = TensorInfo.all_of(
        operands, model.input_names, element_dtypes(model.extension_name_to_prefix), normalizations=model.normalizations
    )
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


def read_image(path: Path, operands: Sequence[TensorInfo]) -> AnyArray:
    """Return an image as the only input of a model, see `TensorInfo.preprocess`.

    Raises:
        CommandError: the model does not take an image, or the file is not an image.
    """
    if len(operands) != 1 or not image_layout(operands[0]):
        raise CommandError(
            f"{path.name} needs a model with one input [1,H,W,1], [1,H,W,3] or [1,3,H,W]; {_takes(operands)}"
        )
    from PIL import Image, UnidentifiedImageError

    try:
        return operands[0].preprocess(path)
    except UnidentifiedImageError:
        raise CommandError(f"cannot read the image {path}: unknown image format") from None
    # a damaged file raises one of these, depending on its format
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CommandError(f"cannot read the image {path}: {error_text(error)}") from error


def with_normalization(model: Model, text: str) -> Model:
    """Return a model whose image is normalized as "MEAN/STD" says, in place of what its file says.

    Both are a number, or one for each channel, with commas between them.

    Raises:
        CommandError: the text has another form, or the model does not take an image of floats with these channels.
    """
    try:
        mean, std = (tuple(map(float, part.split(","))) for part in text.split("/"))
    except ValueError:
        raise CommandError(
            f"invalid --normalize {text!r}: expected MEAN/STD, for example 127.5/127.5, or a number for each channel"
        ) from None
    operands = input_operands(model)
    if len(operands) != 1 or not valid_normalization(operands[0], (mean, std)):
        raise CommandError(
            f"--normalize {text} needs a model with one float input of images of as many channels, and divisors that "
            f"are not 0; {_takes(operands)}"
        )
    return replace(model, normalizations=((mean, std),) * len(model.inputs))


def describe_image(operand: TensorInfo, source: str = "the metadata") -> str:
    """Return how pixels become elements of an input, as text. `source` is that of a normalization."""
    layout = image_layout(operand)
    assert layout is not None
    size = f"resized to {layout[1]}x{layout[0]}"
    if normalization := valid_normalization(operand, operand.normalization):
        mean, std = (f"{v[0]:g}" if len(set(v)) == 1 else f"[{', '.join(f'{x:g}' for x in v)}]" for v in normalization)
        return f"{size}, (pixels - {mean}) / {std}, from {source}"
    if operand.type in {OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16}:
        return f"{size}, pixels / 255; the file does not tell another normalization, --normalize does"
    return f"{size}, pixels - 128" if operand.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED else size


def _takes(operands: Sequence[Operand]) -> str:
    return f"this one takes {', '.join(f'{type_name(o.type)} {list(o.dimensions)}' for o in operands)}"


def read_sound(path: Path, operands: Sequence[TensorInfo], rate: int = 0) -> list[AnyArray]:
    """Return a sound as values of the only input of a model: consecutive windows, the last one filled with zeros.

    Samples are from -1 to 1, mono, at a rate in Hz; 0 is the usual one.

    Raises:
        CommandError: the model does not take samples, or the file is not a sound.
    """
    shape = operands[0].dimensions if len(operands) == 1 else ()
    if (
        len(operands) != 1
        or operands[0].type != OperandType.TENSOR_FLOAT32
        or len([size for size in shape if size != 1]) != 1
    ):
        raise CommandError(
            f"{path.name} needs a model with one float input of samples [N] or [1,N]; {_takes(operands)}"
        )
    try:
        samples = read_wav(path.read_bytes(), rate or SAMPLE_RATE)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error
    except ValueError as error:
        raise CommandError(f"cannot read the sound {path}: {error}") from error
    length = max(prod(shape), 1) if all(shape) else len(samples)
    windows = np.zeros((max(1, -(-len(samples) // length)), length), np.float32)
    windows.ravel()[: len(samples)] = samples
    return list(windows.reshape(len(windows), *(size or length for size in shape)))


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
