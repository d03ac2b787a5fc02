"""Large models: operations that are alike are tried once, and the engine gets no model that it plans for seconds."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nnhal.types import DataLocation, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.litert import convert
from nnhal_driver.backends.litert.lowering import Network
from nnhal_driver.backends.litert.shape_analysis import StaticCall, Unsupported
from nnhal_driver.compilation.placement import place
from nnhal_driver.graph import build_graphs, subgraph_view

COUNT = 50
ZERO = DataLocation(0, 0, 4)


def additions(*, chain: bool, shape: tuple[int, ...] = (2,)) -> Model:
    """Return additions of an input, one after the other or side by side."""
    value = Operand(T.TENSOR_FLOAT32, shape, lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
    operands = [
        replace(value, lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=ZERO),
        *[value] * (COUNT - 1),
        replace(value, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT),
    ]
    sources = [0, *range(2, COUNT + 1)] if chain else [0] * COUNT
    operations = [Operation(Op.ADD, (source, 0, 1), (number + 2,)) for number, source in enumerate(sources)]
    outputs = (COUNT + 1,) if chain else tuple(range(2, COUNT + 2))
    if not chain:
        operands[2:] = [operands[-1]] * COUNT
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), outputs), operand_values=bytes(4))


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the operations that are converted."""
    original, converted = convert._convert_call, list[int]()

    def count(network: Network, call: StaticCall) -> None:
        converted.append(call.view.index)
        original(network, call)

    monkeypatch.setattr(convert, "_convert_call", count)
    yield converted


def test_operations_that_are_alike_are_tried_once(conversions: list[int]) -> None:
    graph = build_graphs(additions(chain=True))[0]
    for view in graph.operations:
        convert.check_operation(view)
    # x + x; the first result, which is not an input; and the last one, which is an output
    assert conversions == [0, 1, COUNT - 1]


def test_different_operations_are_tried_each(conversions: list[int]) -> None:
    model = additions(chain=True)
    operands = list(model.main.operands)
    operands[5] = replace(operands[5], dimensions=(3,))
    graph = build_graphs(replace(model, main=replace(model.main, operands=tuple(operands))))[0]
    refused = []
    for view in graph.operations:
        try:
            convert.check_operation(view)
        except Unsupported:
            refused.append(view.index)
    assert refused == [3, 4], "one writes the tensor of another shape, the next one reads it"


@pytest.mark.parametrize("chain", [True, False])
def test_tensors_that_are_in_use_at_the_same_time_are_limited(monkeypatch: pytest.MonkeyPatch, chain: bool) -> None:
    monkeypatch.setattr(convert, "_MAX_LIVE_TENSORS", COUNT)
    graph = build_graphs(additions(chain=chain))[0]
    subgraph = subgraph_view(graph, range(COUNT), relaxed=False)
    if chain:
        assert convert.convert(subgraph, [(2,)], 2**20).operators == ("ADD",) * COUNT
        return
    with pytest.raises(Unsupported, match=f"{COUNT + 1} tensors are in use at the same time"):
        convert.convert(subgraph, [(2,)], 2**20)


@pytest.mark.parametrize(("elements", "backends"), [(2**23, {"CpuAcc"}), (2**24, {"CpuRef"})])
def test_maps_of_very_many_elements_run_on_cpu_ref(elements: int, backends: set[str]) -> None:
    """The engine cannot stop in an operation. CpuRef computes it in blocks."""
    graphs = build_graphs(additions(chain=True, shape=(elements,)))
    placement = place(graphs, registry.create(["CpuAcc", "CpuRef"]))
    assert {operation.backend for operation in placement.operations} == backends
