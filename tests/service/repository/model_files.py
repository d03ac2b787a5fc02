"""Files of small models for a repository, and the answers of a served model."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from nnhal.types import DataLocation, Memory, Request, RequestArgument, ReturnedPool
from nnhal_service.repository.repository import Repository
from tests.nnhal.tflite.build import Op, Tensor, build, options


def adding(number: float, size: int = 2, type_: str = "FLOAT32") -> bytes:
    """Return a file that adds a number to its input "x", whose output is "y"."""
    x, y = Tensor((size,), type_, name="x"), Tensor((size,), type_, name="y")
    return build(Op("ADD", [x, Tensor((size,), type_, [number] * size)], [y], options("Add")))


def adding_to_items(number: float, more: dict[str, Any] | None = None) -> bytes:
    """Return a file that adds a number to its input "x" of two values in a batch, whose output is "y"."""
    x, y = Tensor((1, 2), name="x", more=more or {}), Tensor((1, 2), name="y", more=more or {})
    return build(Op("ADD", [x, Tensor((1, 2), data=[number] * 2)], [y], options("Add")), inputs=[x])


def put(path: Path, data: bytes) -> None:
    """Put a file in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(data)
    os.replace(new, path)


def added(repository: Repository, name: str, version: int | None = None) -> float:
    """Return the number that a model in a repository adds."""
    prepared = repository.get(name, version, 60).prepared
    value = np.zeros(2, np.float32)
    argument = RequestArgument(location=DataLocation(0, 0, value.nbytes))
    request = Request((argument,), (RequestArgument(location=DataLocation(1)),), (Memory.of(value), ReturnedPool()))
    (output,) = prepared.execute_synchronously(request).returned
    assert output is not None
    return float(output.view(np.float32)[0])
