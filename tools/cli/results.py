"""Outputs of a model: the best classes, a summary, or .npy files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nnhal.types import AnyArray, Model, Operand, OperandType
from tools.cli.errors import CommandError
from tools.cli.inputs import reason

if TYPE_CHECKING:
    from rich.table import Table

BEST = 5

QUANTISED = {
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT16_ASYMM,
    OperandType.TENSOR_QUANT16_SYMM,
}


def count_classes(model: Model) -> int:
    """N where the first output is [1,N], N > 1, and so gives each of N classes a value; else 0."""
    match [model.main.operands[i].dimensions for i in model.main.output_indexes]:
        case [(1, classes), *_] if classes > 1:
            return classes
    return 0


def read_labels(path: Path, classes: int) -> list[str]:
    """Labels, one a line.

    Raises:
        CommandError: the file cannot be read, or is for another number of classes.
    """
    try:
        labels = path.read_text("utf-8").rstrip().splitlines()
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the labels {path}: {reason(error)}") from error
    if not classes:
        raise CommandError("--labels needs a model whose first output is [1,N]")
    if len(labels) != classes:
        raise CommandError(f"{path} holds {len(labels)} labels; the model has {classes} classes")
    return labels


def real_values(output: AnyArray, operand: Operand) -> npt.NDArray[np.float64]:
    """The real values of an output: dequantised where its type is quantised."""
    values = output.astype(np.float64)
    return (values - operand.zero_point) * operand.scale if operand.type in QUANTISED else values


def best_classes(output: AnyArray, operand: Operand, labels: Sequence[str]) -> "Table":
    """The five best of a class vector [1,N].

    Args:
        labels: N labels, or none.
    """
    from rich.table import Table

    values = real_values(output, operand)[0]
    likely = values.min() >= 0 and values.max() <= 1  # else the model ends before its softmax
    table = Table()
    table.add_column("class", justify="right")
    if labels:
        table.add_column("label")
    table.add_column("probability" if likely else "score", justify="right")
    for index in np.argsort(-values, kind="stable")[:BEST]:
        label = [labels[index]] if labels else []
        table.add_row(str(index), *label, f"{values[index]:.4f}" if likely else f"{values[index]:.4g}")
    return table


def summary(outputs: Sequence[AnyArray], operands: Sequence[Operand], names: Sequence[str]) -> "Table":
    """Shape, dtype and range of outputs; their real values where they are quantised."""
    from rich.table import Table

    table = Table("output", "shape", "dtype")
    for column in ("min", "max", "mean"):
        table.add_column(column, justify="right")
    for output, operand, name in zip(outputs, operands, names, strict=True):
        values = real_values(output, operand)
        figures = (values.min(), values.max(), values.mean()) if values.size else ()
        shape = str(list(output.shape))
        table.add_row(name, shape, str(output.dtype), *(f"{figure:.6g}" for figure in figures))
    return table


def output_names(names: Sequence[str], count: int) -> list[str]:
    """A name for each output: the model's own, or "output_0" and so on."""
    return [names[i] if i < len(names) and names[i] else f"output_{i}" for i in range(count)]


def save(folder: Path, outputs: Sequence[AnyArray], names: Sequence[str]) -> list[Path]:
    """Saves outputs as they came, not dequantised, as NAME.npy; what a file's name cannot hold becomes "_".

    Raises:
        CommandError: a file cannot be written.
    """
    plain = [re.sub(r"[^\w.-]", "_", name) for name in names]
    paths = [folder / f"{name}{f'_{i}' if plain.count(name) > 1 else ''}.npy" for i, name in enumerate(plain)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, output in zip(paths, outputs, strict=True):
            np.save(path, output)
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {reason(error)}") from error
    return paths
