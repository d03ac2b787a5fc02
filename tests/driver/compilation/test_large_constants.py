"""Constants of many elements: no step of a preparation makes Python objects of them, or iterates over them.

Python would hold the interpreter lock for seconds, or take it from all other threads again and again.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.operations import SIGNATURES
from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    Memory,
    Model,
    OperandLifeTime,
    OperationType,
    SymmPerChannelQuantParams,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import CompileOptions
from nnhal_driver.backends.litert.shape_analysis import analyze_shapes
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.graph import build_graphs
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import int_tensor, run_kernel, tensor
from tests.end_to_end.support.random_models import random_sample

ELEMENTS = 2**16
"""Elements of an oversized constant."""
STEPS = 2**15
"""Lines of Python that a preparation of one operation may run: far more than any needs, and fewer than elements."""
CONVERTED = 64
"""Elements that may become Python objects at once: two for each dimension of a tensor."""


@dataclass
class Work:
    """Lines of Python that ran, and the sizes of the arrays that were converted to lists."""

    lines: int = 0
    largest_list: int = 0


@contextmanager
def measured_work() -> Iterator[Work]:
    """Count the work of the calling thread. A loop over the elements of a constant fails soon."""
    work = Work()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            work.lines += 1
            assert work.lines <= STEPS, f"more than {STEPS} lines, the last in {frame.f_code.co_qualname}"
        return trace

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ == "tolist" and isinstance(argument.__self__, np.ndarray):
            work.largest_list = max(work.largest_list, argument.__self__.size)

    # coverage may have set functions of its own
    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        yield work
    finally:
        sys.settrace(tracer)
        sys.setprofile(profiler)


def prepare(model: Model) -> None:
    """Check, place and compile a model, with CpuAcc and CpuRef, on the calling thread.

    Raises:
        HalError: it is invalid, or no backend supports it.
    """
    validate_model(model)
    graphs = build_graphs(model)
    backends = registry.create(["CpuAcc", "CpuRef"])
    place_and_compile(graphs, backends, CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER), relaxed=False)


def plausible_model(type_: int) -> Model:
    """Return a model of one operation whose shapes obey its rules, if a random search finds one soon."""
    random = Random(type_)
    for _ in range(300):
        model = random_sample(random, type_).model
        try:
            validate_model(model)
            if analyze_shapes(build_graphs(model)[0]).calls:
                break
        except HalError:
            continue
    return model


def with_large_constant(model: Model, position: int, shape: Sequence[int], value: int) -> Model:
    """Return a model in which one operand is a constant of a given shape whose elements are all equal."""
    operand = model.main.operands[position]
    array = np.full(shape, value, DTYPES[operand.type])
    params = operand.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        # a message has one scale for each channel, so its size limits their number
        shape = (min(shape[0], 16), *shape[1:])
        array = array.reshape(-1)[: int(np.prod(shape))].reshape(shape)
        params = replace(params, scales=params.scales[:1] * shape[0], channel_dim=0)
    operands = list(model.main.operands)
    operands[position] = replace(
        operand,
        dimensions=tuple(shape),
        lifetime=OperandLifeTime.CONSTANT_POOL,
        location=DataLocation(len(model.pools), 0, array.nbytes),
        extra_params=params,
    )
    for output in model.main.output_indexes:
        if operands[output].extra_params is None:
            operands[output] = replace(operands[output], dimensions=())
    inputs = tuple(i for i in model.main.input_indexes if i != position)
    array.flags.writeable = False
    return replace(
        model,
        main=replace(model.main, operands=tuple(operands), input_indexes=inputs),
        pools=(*model.pools, Memory.of(array)),
    )


def large_shapes(dimensions: Sequence[int]) -> list[tuple[int, ...]]:
    """Return shapes of many elements: of rank 1, and of the given rank with the first or the last dimension large."""
    rest = list(dimensions) or [1]
    first = (max(1, ELEMENTS // int(np.prod(rest[1:]))), *rest[1:])
    last = (*rest[:-1], max(1, ELEMENTS // int(np.prod(rest[:-1]))))
    return list(dict.fromkeys([(ELEMENTS,), first, last]))


@pytest.mark.slow
@pytest.mark.parametrize("type_", sorted(SIGNATURES), ids=lambda type_: OperationType(type_).name)
def test_no_argument_becomes_python_objects(type_: int) -> None:
    model = plausible_model(type_)
    for position in model.main.operations[0].inputs:
        operand = model.main.operands[position]
        if operand.type in SCALAR_TYPES or operand.lifetime == OperandLifeTime.NO_VALUE:
            continue
        for shape in large_shapes(operand.dimensions):
            for value in (0, 1):
                changed = with_large_constant(model, position, shape, value)
                with measured_work() as work:
                    try:
                        prepare(changed)
                    except HalError as error:
                        assert len(error.reason) < 2000, "an error message lists the elements"
                assert work.largest_list <= CONVERTED, (position, shape)


LONG = int_tensor(np.ones(ELEMENTS, np.int32))
X = (tensor(T.TENSOR_FLOAT32, (1, 1)), [[1.0]])


@pytest.mark.parametrize(
    ("type_", "inputs", "reason"),
    [
        (Op.RESHAPE, [X, LONG], "has rank 65536; this device takes at most 32"),
        (Op.FILL, [LONG, (tensor(T.FLOAT32), 0.0)], "has rank 65536; this device takes at most 32"),
        (Op.TILE, [X, LONG], "multiples has 65536 elements; it must have 2"),
        (Op.TRANSPOSE, [X, LONG], "perm has 65536 elements; it must have 2"),
        (Op.PAD, [X, int_tensor(np.ones((ELEMENTS, 2), np.int32))], r"paddings has shape \[65536, 2\]"),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_long_vectors_are_rejected(type_: Op, inputs: Any, reason: str) -> None:
    with measured_work() as work, pytest.raises(HalError, match=reason) as caught:
        run_kernel(type_, inputs, [tensor(T.TENSOR_FLOAT32)])
    assert caught.value.status in (ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT)
    assert work.largest_list <= CONVERTED


def test_an_axis_may_be_repeated() -> None:
    axes = int_tensor(np.resize([1, -1, 0], CONVERTED))
    (result,) = run_kernel(Op.REDUCE_SUM, [X, axes, (tensor(T.BOOL), True)], [tensor(T.TENSOR_FLOAT32)])
    np.testing.assert_array_equal(result, [[1.0]])


def test_error_for_many_wrong_axes_is_short() -> None:
    axes = int_tensor(np.arange(2, 2 + CONVERTED, dtype=np.int32))
    with pytest.raises(HalError, match=r"each must be in -2\.\.1") as caught:
        run_kernel(Op.REDUCE_SUM, [X, axes, (tensor(T.BOOL), True)], [tensor(T.TENSOR_FLOAT32)])
    assert len(caught.value.reason) < 500


def test_the_measurement_sees_loops_and_lists() -> None:
    """The guard itself: a loop over elements fails, and the size of a list is seen."""
    array = np.zeros(ELEMENTS, np.int32)
    with measured_work() as work:
        array[:1000].tolist()
    assert work.largest_list == 1000
    with pytest.raises(AssertionError, match="more than"), measured_work():
        [int(value) for value in array]
    assert threading.current_thread() is threading.main_thread()
