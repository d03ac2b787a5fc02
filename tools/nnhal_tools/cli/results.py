"""Outputs of a model, shown as the best classes or a summary, or saved as .npy files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnhal.types import AnyArray, Model, Operand, OperandType
from nnhal_tools.cli.errors import CommandError, error_text

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_CLASSES = 5

QUANTIZED = {
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT16_ASYMM,
    OperandType.TENSOR_QUANT16_SYMM,
}


def count_classes(model: Model) -> int:
    """Return N if the first output is a value for each of N classes: [1,N] with N > 1. Return 0 otherwise."""
    match [model.main.operands[i].dimensions for i in model.main.output_indexes]:
        case [(1, classes), *_] if classes > 1:
            return classes
    return 0


def read_labels(path: Path, classes: int) -> list[str]:
    """Return the labels of a file, one per line.

    Raises:
        CommandError: the file is unreadable, or has another number of labels than the model has classes.
    """
    if not classes:
        raise CommandError("--labels needs a model whose first output is [1,N]")
    try:
        labels = path.read_text("utf-8").rstrip().splitlines()
    except UnicodeDecodeError:
        raise CommandError(f"cannot read the labels {path}: expected text in UTF-8, one label per line") from None
    except OSError as error:
        raise CommandError(f"cannot read the labels {path}: {error_text(error)}") from error
    if len(labels) != classes:
        raise CommandError(f"{path} has {len(labels)} labels; expected {classes}, one for each class of the model")
    return labels


def real_values(output: AnyArray, operand: Operand) -> npt.NDArray[np.float64]:
    """Return the real values of an output, dequantized if its type is quantized."""
    values = output.astype(np.float64)
    return (values - operand.zero_point) * operand.scale if operand.type in QUANTIZED else values


def best_classes(output: AnyArray, operand: Operand, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the five classes with the highest values: their number, label if there is one, and probability or score.

    Args:
        output: a value for each class, [1,N].
        operand: the operand of the output.
        labels: the N labels, or an empty sequence.
    """
    values = real_values(output, operand)[0]
    is_probability = values.min() >= 0 and values.max() <= 1  # otherwise the model has no softmax
    return [
        {
            "class": int(index),
            **({"label": labels[index]} if labels else {}),
            "probability" if is_probability else "score": float(values[index]),
        }
        for index in np.argsort(-values, kind="stable")[:SHOWN_CLASSES]
    ]


def best_classes_table(output: AnyArray, operand: Operand, labels: Sequence[str]) -> "Table":
    """Return the result of `best_classes` as a table."""
    from rich.table import Table

    rows = best_classes(output, operand, labels)
    table = Table()
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "label" else "right")
    formats = {"class": "d", "label": "", "probability": ".4f", "score": ".4g"}
    for row in rows:
        table.add_row(*(format(value, formats[column]) for column, value in row.items()))
    return table


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
    from rich.table import Table

    figures = ("min", "max", "mean")
    table = Table("output", "shape", "dtype")
    for column in figures:
        table.add_column(column, justify="right")
    for row in summaries(outputs, operands, names):
        cells = [f"{row[figure]:.6g}" for figure in figures if figure in row]
        table.add_row(row["output"], str(row["shape"]), row["dtype"], *cells)
    return table


def output_names(names: Sequence[str], count: int) -> list[str]:
    """Return a name for each output: the one in the model, or "output_0" and so on."""
    return [names[i] if i < len(names) and names[i] else f"output_{i}" for i in range(count)]


def save_outputs(folder: Path, outputs: Sequence[AnyArray], names: Sequence[str]) -> list[Path]:
    """Save outputs as NAME.npy, not dequantized. Characters that a file name cannot have become "_".

    Raises:
        CommandError: a file is not writable.
    """
    safe = [re.sub(r"[^\w.-]", "_", name) for name in names]
    paths = [folder / f"{name}{f'_{i}' if safe.count(name) > 1 else ''}.npy" for i, name in enumerate(safe)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, output in zip(paths, outputs, strict=True):
            np.save(path, output)
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error_text(error)}") from error
    return paths
