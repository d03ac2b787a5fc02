"""Outputs of a model: their meaning, a summary of their values, and files of them."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhal.client.elements import QUANTIZED
from nnhal.tflite.model_metadata import ModelMetadata, TensorMetadata
from nnhal.types import AnyArray, Model, Operand
from nnhal_tools.cli.errors import FAILED, CommandError, error_text, writing
from nnhal_tools.cli.options import require_writable, require_writable_folder
from nnhal_tools.output_kinds.finding import Execution, Finding, OutputView, real_values
from nnhal_tools.output_kinds.recognition import EXPECTED, recognize
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from rich.table import Table


def count_classes(model: Model) -> int:
    """Return N if the outputs seem to be values of N classes: [1,N] is first, or [1,H,W,N] the only one. Else 0."""
    match [model.main.operands[i].dimensions for i in output_indexes(model)]:
        case [(1, classes), *rest] if classes > 1 and len(rest) != 3:  # detectors have four outputs
            return classes
        case [(1, _, _, classes)] if classes > 1:
            return classes
    return 0


def output_indexes(model: Model) -> list[int]:
    """Return the operands of the outputs that are not states."""
    states = {state.output_index for state in model.states}
    return [operand for i, operand in enumerate(model.main.output_indexes) if i not in states]


def interpret(
    outputs: Sequence[AnyArray],
    operands: Sequence[Operand],
    names: Sequence[str],
    metadata: ModelMetadata,
    input_shapes: Sequence[tuple[int, ...]],
    labels: Sequence[str],
) -> Finding | None:
    """Return the meaning of outputs, or None if no name, metadata or shape tells it. `labels` are the user's, or ().

    Raises:
        CommandError: there are labels, but nothing that they belong to.
    """
    described = metadata.outputs if len(metadata.outputs) == len(outputs) else [TensorMetadata()] * len(outputs)
    views = [
        OutputView(
            name,
            real_values(output, operand),
            output.dtype.kind in "iu" and operand.type not in QUANTIZED,
            described[i],
        )
        for i, (name, output, operand) in enumerate(zip(names, outputs, operands, strict=True))
    ]
    finding = recognize(Execution(views, input_shapes, labels))
    if labels and not finding:
        raise CommandError("--labels needs outputs with classes; the outputs are of no known kind")
    return finding


def read_labels(path: Path, classes: int) -> list[str]:
    """Return the labels of a file, one per line. `classes`: number of classes of the model, or 0 if it is unknown.

    Raises:
        CommandError: the file is unreadable, or has another number of labels than the model has classes.
    """
    try:
        labels = path.read_text("utf-8").rstrip().splitlines()
    except UnicodeDecodeError:
        raise CommandError(f"cannot read the labels {path}: expected text in UTF-8, one label per line") from None
    except OSError as error:
        raise CommandError(f"cannot read the labels {path}: {error_text(error)}") from error
    if classes and len(labels) != classes:
        raise CommandError(f"{path} has {len(labels)} labels; expected {classes}, one for each class of the model")
    return labels


def summaries(outputs: Sequence[AnyArray], operands: Sequence[Operand], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return names, shapes, dtypes and ranges of outputs. Ranges are real values, also of quantized outputs.

    An empty output has no range.
    """
    rows = []
    for output, operand, name in zip(outputs, operands, names, strict=True):
        values = real_values(output, operand)
        figures = {"min": values.min(), "max": values.max(), "mean": values.mean()} if values.size else {}
        ranges = {key: float(figure) for key, figure in figures.items()}
        rows.append({"output": name, "shape": list(output.shape), "dtype": str(output.dtype), **ranges})
    return rows


def summary_table(outputs: Sequence[AnyArray], operands: Sequence[Operand], names: Sequence[str]) -> "Table":
    """Return the result of `summaries` as a table."""
    figures = ("min", "max", "mean")
    table = make_table("output", "shape", "dtype", *figures, right=figures)
    for row in summaries(outputs, operands, names):
        cells = [f"{row[figure]:.6g}" for figure in figures if figure in row]
        table.add_row(row["output"], str(row["shape"]), row["dtype"], *cells)
    return table


def output_names(names: Sequence[str], count: int) -> list[str]:
    """Return a name for each output: the one in the model, or "output_0" and so on."""
    return [names[i] if i < len(names) and names[i] else f"output_{i}" for i in range(count)]


def require_output_path(path: Path | None, output_count: int) -> None:
    """Check, before a command does its work, that it can save so many outputs under a path.

    Raises:
        CommandError: the path is not writable, or is a .npy file and there are several outputs.
    """
    if path is None or path.suffix not in {".npy", ".npz"}:
        return require_writable_folder(path)
    if path.suffix == ".npy" and output_count != 1:
        raise CommandError(f"cannot save {output_count} outputs in {path}; give a .npz archive or a folder")
    return require_writable(path)


def save_outputs(path: Path, outputs: Sequence[AnyArray], names: Sequence[str]) -> list[Path]:
    """Save outputs, not dequantized, and return the files.

    The path is a .npy file for one output, a .npz archive, or otherwise a folder for files NAME.npy. Characters that a
    file name cannot have become "_".

    Raises:
        CommandError: a file is not writable.
    """
    with writing(path):
        if path.suffix == ".npz":
            return [_save_archive(path, outputs, distinct(names))]
        if path.suffix == ".npy":
            np.save(path, outputs[0])
            return [path]
        path.mkdir(parents=True, exist_ok=True)
        paths = [path / f"{name}.npy" for name in distinct([re.sub(r"[^\w.-]", "_", name) for name in names])]
        for file, output in zip(paths, outputs, strict=True):
            np.save(file, output)
        return paths


def distinct(names: Sequence[str]) -> list[str]:
    """Return names with a number at the end of those that occur twice."""
    return [f"{name}{f'_{i}' if names.count(name) > 1 else ''}" for i, name in enumerate(names)]


def _save_archive(path: Path, outputs: Sequence[AnyArray], names: Sequence[str]) -> Path:
    """Save outputs in an archive. `np.savez` does not take all names: "file" is one of its parameters."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, output in zip(names, outputs, strict=True):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, output, allow_pickle=False)
    return path


def require_drawable(path: Path | None, image: Path | None) -> None:
    """Check, before a command does its work, that it can draw on an image and save the picture, or in a folder.

    Raises:
        CommandError: there is no image, or the format of the picture is unknown.
    """
    if path is None:
        return
    from PIL import Image

    if image is None:
        raise CommandError("--draw needs an image, the picture to draw on")
    if not path.suffix:
        return require_writable_folder(path)
    if Image.registered_extensions().get(path.suffix.lower()) not in Image.SAVE:
        raise CommandError(f"cannot draw {path}: unknown image format {path.suffix!r}; use .png, for example")
    return require_writable(path)


def draw(path: Path, image: Path, finding: Finding | None) -> Path:
    """Save an image with the meaning of the outputs drawn on it, in a file or a folder, and return the file.

    Raises:
        CommandError: the meaning is unknown, or the file is not writable.
    """
    from PIL import Image

    if finding is None:
        raise CommandError(f"cannot draw: the outputs are of no known kind; looked for {EXPECTED}", FAILED)
    with Image.open(image) as picture:
        drawn = finding.draw(picture)
    path = path if path.suffix else path / f"{image.stem}.png"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.save(path)
    return path
