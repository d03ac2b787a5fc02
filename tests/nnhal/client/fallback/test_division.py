"""Models divided into parts: any division gives the results of the whole model, and keeps what belongs together."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal import ModelBuilder, litert_extension
from nnhal.client.fallback.division import DividedModel, divide, divide_among
from nnhal.types import (
    DataLocation,
    Memory,
    Model,
    ModelState,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.random_graphs import Sample, graphs
from tests.nnhal.client.fallback.in_process import run_divided, run_whole
from tests.nnhal.client.fallback.models import F32, X, branching, chain
from tests.nnhal.client.fallback.random_graphs import connected_graphs


def operation_sets(divided: DividedModel) -> list[tuple[bool, tuple[int, ...]]]:
    return [(part.is_fallback, part.operations) for part in divided.parts]


def check_random_divisions(samples: st.SearchStrategy[Sample], count: int) -> int:
    """Compare random divisions of random graphs with the whole graph, and return the number of values that crossed.

    Hypothesis also draws constants of the imported modules, so the number varies from one commit to the next.
    """
    crossed = 0

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(sample=samples, data=st.data())
    def check(sample: Sample, data: st.DataObject) -> None:
        nonlocal crossed
        if not sample.expected:  # the whole model takes an empty tensor, or refuses it
            return
        model = sample.model
        count = len(model.main.operations)
        devices = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        versatile = data.draw(st.sets(st.integers(0, count - 1)))
        divided = divide_among(model, devices, lambda device, i: devices[i] == device or i in versatile)
        results = run_divided(divided, sample.inputs)
        if results is not None:
            crossed += len({o for part in divided.parts for o in part.inputs} - {*model.main.input_indexes})
            for result, expected in zip(results, run_whole(model, sample.inputs), strict=True):
                assert result.dtype == expected.dtype
                np.testing.assert_array_equal(result, expected)

    check()
    return crossed


def test_random_divisions() -> None:
    assert check_random_divisions(connected_graphs(), 150) > 50


@pytest.mark.nightly
def test_many_random_divisions() -> None:
    assert check_random_divisions(connected_graphs(), 2000) > 700
    assert check_random_divisions(graphs(), 500) > 30


# ---- Single properties ----------------------------------------------------------------------------------


def test_parts_alternate() -> None:
    divided = divide(chain(Op.ABS, Op.NEG, Op.FLOOR, Op.EXP), {1, 2})
    assert operation_sets(divided) == [(False, (0,)), (True, (1, 2)), (False, (3,))]
    assert divided.fallback_operations == {1, 2}
    assert divided.crossing_bytes == 2 * X.nbytes
    assert [part.model.main.operations for part in divided.parts] == [
        (Operation(Op.ABS, (0,), (1,)),),
        (Operation(Op.NEG, (0,), (1,)), Operation(Op.FLOOR, (1,), (2,))),
        (Operation(Op.EXP, (0,), (1,)),),
    ]


def test_unknown_shape_has_an_unknown_cost() -> None:
    builder = ModelBuilder()
    unknown = Operand(T.TENSOR_FLOAT32, (0, 3))
    value = builder.add(Op.ABS, builder.input(T.TENSOR_FLOAT32, (0, 3)), output=unknown)
    builder.output(builder.add(Op.NEG, value, output=unknown))
    divided = divide(builder.build(), {1})
    assert divided.crossing_bytes is None
    results = run_divided(divided, [X])
    assert results is not None
    np.testing.assert_array_equal(results[0], -X)


def test_value_that_several_parts_read_is_an_output_once() -> None:
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    first = builder.add(Op.ABS, x, output=F32)
    second = builder.add(Op.NEG, first, output=F32)
    builder.output(builder.add(Op.ADD, first, second, 0, output=F32))
    builder.output(first)
    divided = divide(builder.build(), {1})
    assert [(len(part.inputs), len(part.outputs)) for part in divided.parts] == [(1, 1), (1, 1), (2, 1)]
    results = run_divided(divided, [X])
    assert results is not None
    np.testing.assert_array_equal(results[0], np.zeros((2, 3)))
    np.testing.assert_array_equal(results[1], X)


def test_operation_whose_result_is_not_read_is_kept() -> None:
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    builder.add(Op.NEG, x, output=F32)
    builder.output(builder.add(Op.ABS, x, output=F32))
    divided = divide(builder.build(), {0})
    assert sorted(operation_sets(divided)) == [(False, (1,)), (True, (0,))]
    assert run_divided(divided, [X]) is not None


def constant_graph(outputs: Sequence[int]) -> Model:
    """Return operation 0 on a constant, which 1 reads; 2 and 3 read the result of 1. `outputs`: further outputs."""
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    values = [builder.add(Op.ABS, -X, output=F32)]
    values.append(builder.add(Op.NEG, values[0], output=F32))
    values.append(builder.add(Op.ADD, x, values[1], 0, output=F32))
    values.append(builder.add(Op.MUL, values[2], values[1], 0, output=F32))
    builder.output(values[3])
    for i in outputs:
        builder.output(values[i])
    return builder.build()


@pytest.mark.parametrize(
    ("unsupported", "outputs", "expected"),
    [
        ({3}, [], [(False, (0, 1, 2)), (True, (0, 1, 3))]),
        ({2}, [], [(True, (0, 1, 2)), (False, (0, 1, 3))]),
        ({1, 3}, [], [(True, (0, 1)), (False, (2,)), (True, (3,))]),
        ({0, 1, 2, 3}, [], [(True, (0, 1, 2, 3))]),
        ({0, 2, 3}, [], [(True, (0, 1, 2, 3))]),
        ({3}, [1], [(False, (0, 1, 2)), (True, (3,))]),
    ],
)
def test_operations_on_constants_follow_their_readers(
    unsupported: set[int], outputs: list[int], expected: list[tuple[bool, tuple[int, ...]]]
) -> None:
    model = constant_graph(outputs)
    divided = divide(model, unsupported)
    assert operation_sets(divided) == expected
    results = run_divided(divided, [X])
    assert results is not None
    for result, whole in zip(results, run_whole(model, [X]), strict=True):
        np.testing.assert_array_equal(result, whole)


def test_names_and_states_stay_with_the_whole_model() -> None:
    model = replace(
        chain(Op.ABS, Op.NEG), operation_names=("first", "second"), states=(ModelState("s", 0, 0, np.zeros(6)),)
    )
    divided = divide(model, {1})
    assert divided.whole is model
    assert [part.model.operation_names for part in divided.parts] == [("first",), ("second",)]
    assert all(part.model.states == () and part.model.input_names == () for part in divided.parts)


def test_relaxed_computation_is_kept() -> None:
    model = replace(chain(Op.ABS, Op.NEG), relax_computation_float32_to_float16=True)
    assert all(part.model.relax_computation_float32_to_float16 for part in divide(model, {1}).parts)


# ---- Extensions -----------------------------------------------------------------------------------------


def test_part_names_the_extensions_that_it_uses() -> None:
    builder = ModelBuilder()
    other, litert = builder.extension("org.example.other"), builder.extension(litert_extension.NAME)
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    wide = Operand(litert.operand_type(1), (2, 3))
    value = builder.add(litert.operation_type(0), builder.add(Op.ABS, x, output=F32), output=wide)
    builder.output(builder.add(other.operation_type(7), value, output=F32))
    divided = divide(builder.build(), {1, 2})
    assert [[entry.name for entry in part.model.extension_name_to_prefix] for part in divided.parts] == [
        [],
        ["org.example.other", litert_extension.NAME],
    ]
    assert divided.crossing_bytes == X.nbytes


def test_size_of_the_types_of_the_extension_is_known() -> None:
    builder = ModelBuilder()
    litert = builder.extension(litert_extension.NAME)
    wide = Operand(litert.operand_type(1), (2, 3))
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    value = builder.add(litert.operation_type(0), x, output=wide)
    builder.output(builder.add(litert.operation_type(0), value, output=F32))
    assert divide(builder.build(), {1}).crossing_bytes == 6 * 8


# ---- Referenced subgraphs -------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [True, False])
def test_parts_have_the_subgraphs_that_they_run(flag: bool) -> None:
    model, inputs = branching()
    divided = divide(model, {1})
    assert [part.subgraphs for part in divided.parts] == [(0, 1, 2), (0, 3, 4, 5, 6)]
    arguments = [*inputs, np.array([flag])]
    results = run_divided(divided, arguments)
    assert results is not None
    np.testing.assert_array_equal(results[0], run_whole(model, arguments)[0])


# ---- Constants ------------------------------------------------------------------------------------------


def with_weights(offsets: Sequence[int], pool: Memory) -> Model:
    """Return a chain of ADDs whose second operands are constants at these offsets of a pool."""
    operands = [replace(F32, lifetime=OperandLifeTime.SUBGRAPH_INPUT)]
    operands.append(Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)))
    operations = []
    value = 0
    for offset in offsets:
        location = DataLocation(0, offset, X.nbytes)
        operands.append(replace(F32, lifetime=OperandLifeTime.CONSTANT_POOL, location=location))
        operands.append(replace(F32, lifetime=OperandLifeTime.TEMPORARY_VARIABLE))
        operations.append(Operation(Op.ADD, (value, len(operands) - 2, 1), (len(operands) - 1,)))
        value = len(operands) - 1
    operands[-1] = replace(operands[-1], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    main = Subgraph(tuple(operands), tuple(operations), (0,), (value,))
    return Model(main, operand_values=bytes(4), pools=(pool,))


def test_constants_are_windows_without_a_copy() -> None:
    buffer = np.zeros(3 * 2**20, np.uint8)
    offsets = [100, 2**20 + 200, 2**21 + 300]
    for i, offset in enumerate(offsets):
        buffer[8 + offset : 8 + offset + X.nbytes] = np.full((2, 3), 10.0**i, np.float32).view(np.uint8).reshape(-1)
    model = with_weights(offsets, Memory(buffer, 8, buffer.size - 8))
    divided = divide(model, {1})
    pools = [part.model.pools for part in divided.parts]
    assert [[pool.size for pool in each if isinstance(pool, Memory)] for each in pools] == [
        [X.nbytes + 100 % 64],
        [X.nbytes + offsets[1] % 64],
        [X.nbytes + offsets[2] % 64],
    ]
    assert all(isinstance(pool, Memory) and pool.buffer is buffer for each in pools for pool in each)
    results = run_divided(divided, [X])
    assert results is not None
    np.testing.assert_array_equal(results[0], X + 111)


def test_close_constants_share_a_window_and_distant_ones_do_not() -> None:
    buffer = np.zeros(4 * 2**20, np.uint8)
    offsets = [0, 1000, 3 * 2**20]
    divided = divide(with_weights(offsets, Memory.of(buffer)), set())
    (part,) = divided.parts
    sizes = [pool.size for pool in part.model.pools if isinstance(pool, Memory)]
    assert sizes == [1000 + X.nbytes, X.nbytes]
    assert run_divided(divided, [X]) is not None
