"""Batches of models by name: the model for several items at once, and a check that its items are independent."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from nnhal.errors import HalError
from nnhal.tflite.errors import TfliteError
from nnhal.types import DTYPES, AnyArray, Operand
from nnhal_driver.execution.batching import BatchedModel, Batcher
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import DEFAULT_CONFIG, PreparedModel
from nnhal_driver.execution.returned_values import returned_arrays, returned_request
from nnhal_service.repository.model_config import ModelConfig
from nnhal_service.repository.model_folder import UnusableFileError

Shape = tuple[int, ...]
_TOLERANCE = 0.02
"""Most difference, relative to the largest value, between an item alone and in a batch: engines round differently."""


def batched_model(
    single: PreparedModel,
    config: ModelConfig,
    input_names: Sequence[str],
    prepare: Callable[[Mapping[str, Shape]], PreparedModel],
) -> BatchedModel:
    """Return a model whose executions may join.

    It is prepared for batches of 2, 4, 8, ... and `max_batch` items: CpuAcc caches models of known shapes, and keeps
    few others.

    `prepare` prepares the model with other shapes of its inputs, by name.

    Raises:
        UnusableFileError: it cannot run several items at once. What `prepare` raises tells so, too.
    """
    items = tuple(_item_shape(f"input {i}", operand) for i, operand in enumerate(single.inputs))
    models = {}
    for count in (*_powers_below(config.max_batch), config.max_batch):
        shapes = [(count * length, *rest) for length, *rest in items]
        with _naming_option():
            models[count] = model = prepare(dict(zip(input_names, shapes, strict=True)))
        _check_shapes(single, model, shapes, count)
    _check_items(single, items, models)
    return BatchedModel.of(single, items, Batcher(models, config.max_delay / 1e3))


@contextmanager
def _naming_option() -> Iterator[None]:
    try:
        yield
    except HalError as error:
        raise HalError(error.status, f"option max_batch: {error.reason}") from error
    except TfliteError as error:
        raise TfliteError(f"option max_batch: {error}") from error


def _powers_below(limit: int) -> list[int]:
    return [2**power for power in range(1, limit.bit_length()) if 2**power < limit]


def _item_shape(name: str, operand: Operand) -> Shape:
    """Return the shape of an operand for one item: of one row, if the first dimension is unknown."""
    if operand.type not in DTYPES:
        raise _no_batch(f"{name} has a type of an extension")
    first, *rest = operand.dimensions or (0, 0)
    if 0 in rest:
        raise _no_batch(f"{name} has shape {list(operand.dimensions)}; only the first dimension may be unknown")
    return (first or 1, *rest)


def _check_shapes(single: PreparedModel, model: PreparedModel, shapes: Sequence[Shape], count: int) -> None:
    """Check that inputs and outputs have as many items as the batch."""
    expected = [*shapes, *((count * first, *rest) for first, *rest in map(_output_shape, single.outputs))]
    for operand, shape in zip((*model.inputs, *model.outputs), expected, strict=True):
        if operand.dimensions != shape:
            raise _no_batch(f"{count} items give a tensor of shape {list(operand.dimensions)}; expected {list(shape)}")


def _output_shape(operand: Operand) -> Shape:
    return _item_shape("an output", operand)


def _check_items(single: PreparedModel, items: Sequence[Shape], models: Mapping[int, PreparedModel]) -> None:
    """Check with random values that an item gets the same outputs alone and with others."""
    count = min(models)
    random = np.random.default_rng(0)
    values = [
        [_random(operand, shape, random) for operand, shape in zip(single.inputs, items, strict=True)]
        for _ in range(count)
    ]
    alone = [_run(single, arrays) for arrays in values]
    joined = _run(models[count], [np.concatenate(arrays) for arrays in zip(*values, strict=True)])
    for index, (actual, *expected) in enumerate(zip(joined, *alone, strict=True)):
        if not _is_close(actual, np.concatenate(expected)):
            raise _no_batch(f"output {index} of an item depends on the others")


def _random(operand: Operand, shape: Shape, random: np.random.Generator) -> AnyArray:
    """Return random values. Integers of 32 bits are 0 or 1, since they may be indexes."""
    dtype = DTYPES[operand.type]
    if dtype.kind == "f":
        return random.random(shape).astype(dtype)
    lowest, end = (-128, 128) if dtype.itemsize < 4 else (0, 2)
    return random.integers(lowest, end, shape).astype(dtype)


def _run(model: PreparedModel, values: Sequence[AnyArray]) -> list[AnyArray]:
    request = returned_request(model, values, [value.shape for value in values])
    return returned_arrays(model, model.execute_valid(request, DEFAULT_CONFIG, ExecutionCall()))


def _is_close(actual: AnyArray, expected: AnyArray) -> bool:
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    largest = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    return bool(np.allclose(actual, expected, rtol=0, atol=_TOLERANCE * largest, equal_nan=True))


def _no_batch(reason: str) -> UnusableFileError:
    return UnusableFileError(f"option max_batch: {reason}")
