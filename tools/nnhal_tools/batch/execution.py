"""Execution of a model on many files, in batches, while the next files are read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from nnhal.errors import DeadObjectError, HalError
from nnhal.types import AnyArray

T = TypeVar("T")

Values: TypeAlias = Sequence[AnyArray]
"""Inputs or outputs of an execution."""
Read: TypeAlias = Callable[[Path], Sequence[Values]]
"""Function that returns the inputs in a file, for one execution or several, as of the windows of a long sound."""
Execute: TypeAlias = Callable[[Values], Values]


def run_files(
    paths: Sequence[Path], read: Read, execute: Execute, batch: int, unreadable: type[Exception]
) -> Iterator[tuple[Path, Values | Exception]]:
    """Yield the outputs for each file, or why there are none. Several executions for a file: the means of the outputs.

    Args:
        paths: the files, each once.
        read: returns what is in a file, and raises `unreadable`.
        execute: runs the model.
        batch: number of executions that the first dimension of all inputs and outputs holds.
        unreadable: the exception for a file that cannot be used.

    Raises:
        DeadObjectError: the service cannot be reached any more.
    """
    items = _read_files(paths, read, unreadable)
    groups = iter(lambda: list(islice(items, batch)), [])
    results = (result for group in _read_ahead(groups) for result in _execute(group, execute, batch))
    for path, parts in groupby(results, key=lambda result: result[0]):
        outputs: list[Values] = []
        error: Exception | None = None
        for _, value in parts:
            if isinstance(value, Exception):
                error = error or value
            else:
                outputs.append(value)
        yield path, error or mean_outputs(outputs)


def _read_files(
    paths: Sequence[Path], read: Read, unreadable: type[Exception]
) -> Iterator[tuple[Path, Values | Exception]]:
    for path in paths:
        try:
            for inputs in read(path):
                yield path, inputs
        except unreadable as error:
            yield path, error


def _read_ahead(groups: Iterable[T]) -> Iterator[T]:
    """Yield groups of inputs. The next one is read meanwhile."""
    iterator = iter(groups)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, iterator, None)
        while (group := following.result()) is not None:
            following = pool.submit(next, iterator, None)
            yield group


def _execute(
    group: Sequence[tuple[Path, Values | Exception]], execute: Execute, batch: int
) -> list[tuple[Path, Values | Exception]]:
    """Run the model on a group of at most `batch` inputs. The last one fills the places that are left."""
    inputs = [values for _, values in group if not isinstance(values, Exception)]
    if not inputs:
        return list(group)
    filled = [*inputs, *[inputs[-1]] * (batch - len(inputs))]
    try:
        outputs = execute([np.concatenate(arrays) for arrays in zip(*filled, strict=True)] if batch > 1 else inputs[0])
    except DeadObjectError:
        raise
    except HalError as error:
        return [(path, values if isinstance(values, Exception) else error) for path, values in group]
    results = iter([output[i : i + 1] for output in outputs] if batch > 1 else outputs for i in range(len(inputs)))
    return [(path, values if isinstance(values, Exception) else next(results)) for path, values in group]


def mean_outputs(parts: Sequence[Values]) -> Values:
    """Return the mean of each output over several executions."""
    if len(parts) == 1:
        return parts[0]
    means = [np.mean(arrays, axis=0) for arrays in zip(*parts, strict=True)]
    return [
        (np.rint(mean) if first.dtype.kind in "iu" else mean).astype(first.dtype)
        for mean, first in zip(means, parts[0], strict=True)
    ]
