"""CpuAcc around its converters: what it refuses and why, constants, shapes, threads, failures of the engine."""

import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from driver.backends import registry
from driver.backends.api import CompileOptions, SubgraphView
from driver.backends.litert import compiled
from driver.backends.litert.backend import CpuAcc
from driver.backends.litert.build import build
from driver.backends.litert.compiled import LitertSubgraph
from driver.backends.litert.engine import EngineMissingError, Interpreter
from driver.backends.litert.threads import ThreadChoice
from driver.backends.report import State
from driver.device import Device, Outcome
from driver.graph import graphs, subgraph_view
from nnhal.errors import HalError
from nnhal.types import Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.models import one_operation
from tests.driver.backends.litert.samples import Case
from tests.driver.one_operation import Value, execute, float_tensor, int32, int_tensor, prepare, tensor
from tests.litert import schema

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

OUT = tensor(T.TENSOR_FLOAT32)
FLOATS = float_tensor(np.arange(12.0).reshape(1, 2, 3, 2))


def outcome_of(case: Case | Model, *backends: str) -> Outcome:
    model = case if isinstance(case, Model) else one_operation(case)[0]
    return prepare(model, Device("test", registry.create(backends or ("CpuAcc", "CpuRef"))))


def product(rows: int) -> Case:
    """A FULLY_CONNECTED with constant weights; 0 rows are an unknown number of them."""
    random = np.random.default_rng(1)
    weights, bias = float_tensor(random.standard_normal((64, 32))), float_tensor(random.standard_normal(64))
    x = tensor(T.TENSOR_FLOAT32, (rows, 32)), np.zeros((max(rows, 1), 32))
    return Case(Op.FULLY_CONNECTED, [x, weights, bias, int32(1)], [OUT], frozenset({1, 2}))


def test_constants_lie_behind_the_flatbuffer() -> None:
    graph = graphs(one_operation(product(4))[0])[0]
    built = build(subgraph_view(graph, [0], relaxed=False), [(4, 32)], 2**32)
    data = built.file.contents().tobytes()
    model = schema().ModelT.InitFromObj(schema().Model.GetRootAs(data, 0))
    places = [(buffer.offset, buffer.size) for buffer in model.buffers if buffer.offset]
    assert all(buffer.data is None for buffer in model.buffers)
    weights = graph.constants[1].tobytes()
    assert (data.index(weights), len(weights)) in places
    assert all(offset % 64 == 0 for offset, _ in places)


def test_many_threads_share_one_model() -> None:
    outcome = outcome_of(product(3))
    weights, bias = (np.asarray(value, np.float32) for _, value in product(3).inputs[1:3])

    def calls(seed: int) -> bool:
        random = np.random.default_rng(seed)
        for _ in range(50):
            x = random.standard_normal((3, 32)).astype(np.float32)
            (found,) = execute(outcome, [x])[1]
            if not np.allclose(found, np.maximum(x @ weights.T + bias, 0), atol=1e-4):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(calls, range(8)))


def test_interpreters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Interpreter] = []

    def counted(model: bytes | str, threads: int) -> Interpreter:
        made.append(Interpreter(model, threads))
        return made[-1]

    monkeypatch.setattr(compiled, "Interpreter", counted)
    monkeypatch.setattr(compiled, "processors", lambda: 2)
    outcome = outcome_of(product(3))
    x = np.zeros((3, 32), np.float32)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: execute(outcome, [x]), range(64)))
    assert 1 <= len(made) <= 2


def test_an_unknown_batch_is_filled_in_at_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LitertSubgraph] = []

    def compile_(_: CpuAcc, subgraph: SubgraphView, options: CompileOptions) -> LitertSubgraph:
        made.append(LitertSubgraph(subgraph, options))
        return made[-1]

    monkeypatch.setattr(CpuAcc, "compile", compile_)
    monkeypatch.setattr(LitertSubgraph, "_fall_back", lambda self: pytest.fail("the engine did not run"))
    outcome = outcome_of(product(0))
    weights, bias = (np.asarray(value, np.float32) for _, value in product(0).inputs[1:3])
    for rows in (1, 5, 2, 5, 9, 1, 7, 3, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32)
        (found,) = execute(outcome, [x])[1]
        np.testing.assert_allclose(found, np.maximum(x @ weights.T + bias, 0), atol=1e-4)
    assert len(made[0].engines) == 4


@pytest.mark.parametrize("error", [RuntimeError("failed to allocate"), MemoryError()])
def test_what_the_engine_cannot_run_ends_on_the_reference(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Interpreter) -> None:
        raise error

    outcome = outcome_of(Case(Op.FLOOR, [float_tensor([1.5, -1.5])], [OUT]))
    monkeypatch.setattr(Interpreter, "invoke", fail)
    (found,) = execute(outcome, [np.array([1.5, -1.5], np.float32)])[1]
    assert found.tolist() == [1, -2]
    assert "CpuRef runs main: LiteRT says" in caplog.text


def test_the_reference_gets_inputs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine copies its inputs, so the host does not; what runs in its place must not read a client's memory."""
    x = np.array([1.5, -1.5], np.float32)
    seen: list[Any] = []

    def fail(_: Interpreter) -> None:
        raise RuntimeError("failed")

    def look(self: LitertSubgraph) -> Any:
        reference = fall_back(self)
        run = reference.execute

        def execute_seen(inputs: list[Any], *rest: Any) -> None:
            seen.extend(inputs)
            run(inputs, *rest)

        monkeypatch.setattr(reference, "execute", execute_seen)
        return reference

    outcome = outcome_of(Case(Op.FLOOR, [float_tensor([1.5, -1.5])], [OUT]))
    fall_back = LitertSubgraph._fall_back
    monkeypatch.setattr(LitertSubgraph, "_fall_back", look)
    monkeypatch.setattr(Interpreter, "invoke", fail)
    execute(outcome, [x])
    assert len(seen) == 1 and not np.shares_memory(seen[0], x)


def test_what_the_engine_does_not_load_is_placed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Interpreter, path: str, threads: int) -> None:
        raise RuntimeError("failed to allocate")

    monkeypatch.setattr(Interpreter, "__init__", fail)
    outcome = outcome_of(Case(Op.FLOOR, [float_tensor([1.5, -1.5])], [OUT]))
    assert outcome.prepared_model is not None, outcome.reason
    (placed,) = outcome.placement.operations
    assert placed.backend == "CpuRef" and "failed to allocate" in placed.refusals[0].reason
    (found,) = execute(outcome, [np.array([1.5, -1.5], np.float32)])[1]
    assert found.tolist() == [1, -2]


_SHORT_OF_MEMORY = """
import resource, sys
import numpy as np
from driver.backends import registry
from driver.device import Device
from nnhal.types import OperandType as T, OperationType as Op
from tests.driver.one_operation import execute, model_of, prepare, tensor

side = 4096  # a tensor of 64 MB
model = model_of(Op.FLOOR, [(tensor(T.TENSOR_FLOAT32, (side, side)), 0)], [tensor(T.TENSOR_FLOAT32)], constants=False)
x = np.full((side, side), 1.5, np.float32)
execute(prepare(model, Device("warm", registry.create(["CpuRef"]))), [x])
device = Device("short", registry.create(["CpuAcc", "CpuRef"]))
execute(prepare(model_of(Op.FLOOR, [(tensor(T.TENSOR_FLOAT32, (1,)), 0)], [tensor(T.TENSOR_FLOAT32)], constants=False),
    device), [x[0, :1]])  # the engine loads its libraries
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + int(sys.argv[1]) * 2**20, resource.RLIM_INFINITY))
outcome = prepare(model, device)
assert outcome.prepared_model is not None, outcome.reason
print(outcome.placement.operations[0].backend)
print(execute(outcome, [x])[1][0].sum() == side * side)
"""


@pytest.mark.parametrize(
    ("megabytes", "placed", "said"),
    [
        (170, ["CpuAcc", "True"], "CpuRef runs main: LiteRT says"),  # the engine runs, its result has no room
        (90, ["CpuRef"], "RESOURCE_EXHAUSTED_TRANSIENT"),  # it cannot even load, and CpuRef has no room either
    ],
)
def test_memory_that_is_too_short_for_the_engine(megabytes: int, placed: list[str], said: str) -> None:
    command = [sys.executable, "-c", _SHORT_OF_MEMORY, str(megabytes)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == placed, ran.stderr
    assert ran.returncode == len(placed) % 2 and said in ran.stderr


def test_memory_is_freed_with_the_last_user() -> None:
    outcome = outcome_of(product(3))
    prepared = outcome.prepared_model
    assert prepared is not None
    gc.collect()
    gc.disable()
    try:
        graph, compiled = weakref.ref(prepared.plan.graph), weakref.ref(prepared.plan.nodes[0])
        del outcome, prepared
        assert graph() is None and compiled() is None, "a circle of references waits for the collector"
    finally:
        gc.enable()


def test_failures_are_those_of_the_reference() -> None:
    x, two = float_tensor([[1, 2], [3, 4]]), np.array([0, 2], np.int32)
    gather = Case(Op.GATHER, [x, int32(0), int_tensor([0, 1])], [OUT])
    complaints = []
    for backends in (("CpuAcc", "CpuRef"), ("CpuRef",)):
        with pytest.raises(HalError) as error:
            execute(outcome_of(gather, *backends), [np.array([[1, 2], [3, 4]], np.float32), two])
        complaints.append((error.value.status, str(error.value)))
    assert complaints[0] == complaints[1]
    assert "indices lie in 0..2" in complaints[0][1]


UNKNOWN = Operand(T.TENSOR_FLOAT32)
REFUSED: list[tuple[Case, str]] = [
    (Case(Op.TOPK_V2, [FLOATS, int32(1)], [OUT, tensor(T.TENSOR_INT32)]), "TOPK_V2 has no counterpart in the engine"),
    (Case(Op.RESHAPE, [FLOATS, int_tensor([12])], [OUT]), "shape is not constant"),
    (Case(Op.PAD, [float_tensor([1.0]), int_tensor([[1, 1]])], [OUT]), "paddings is not constant"),
    (Case(Op.TRANSPOSE, [FLOATS, int_tensor([0, 1, 2, 3])], [OUT]), "perm may be omitted at execution"),
    (Case(Op.ABS, [(UNKNOWN, [1.0])], [OUT]), "the shape of input is not known before execution"),
    (Case(Op.ABS, [(tensor(T.TENSOR_FLOAT32, (1, 0)), [[1.0]])], [OUT]), "the shape of input is not known"),
    (Case(Op.CAST, [float_tensor([1.0])], [tensor(T.TENSOR_INT32)]), "the engine does not clamp numbers"),
    (
        Case(
            Op.BATCH_MATMUL,
            [int_tensor([[1]]), int_tensor([[2]]), (Operand(T.BOOL), False), (Operand(T.BOOL), False)],
            [tensor(T.TENSOR_INT32)],
        ),
        "the engine multiplies no matrices of TENSOR_INT32",
    ),
    (Case(Op.MAX_POOL_2D, [FLOATS, *map(int32, (1, 2**30, 1, 1, 1, 0))], [OUT]), "a stride or window of 1073741824"),
    (
        Case(Op.RELU6, [(tensor(T.TENSOR_QUANT8_ASYMM, (1,), 1e-12), [1])], [tensor(T.TENSOR_QUANT8_ASYMM, (), 1e-12)]),
        "input has the scale",
    ),
    (
        Case(
            Op.TANH, [(tensor(T.TENSOR_QUANT8_ASYMM, (1,), 8), [1])], [tensor(T.TENSOR_QUANT8_ASYMM, (), 1 / 128, 128)]
        ),
        "input has the scale 8",
    ),
    (
        Case(
            Op.MAXIMUM, [(tensor(T.TENSOR_QUANT8_ASYMM, (1,), 9), [1])] * 2, [tensor(T.TENSOR_QUANT8_ASYMM, (), 0.01)]
        ),
        "output has the scale 0.01, the inputs give 9",
    ),
    (Case(Op.SOFTMAX, [float_tensor([1.0]), (Operand(T.FLOAT32), -1)], [OUT]), "it fails whenever it is executed"),
]


@pytest.mark.parametrize(("case", "reason"), REFUSED, ids=[f"{Op(c.type).name} {r[:20]}" for c, r in REFUSED])
def test_refusals_say_why(case: Case, reason: str) -> None:
    view = graphs(one_operation(case)[0])[0].operations[0]
    support = CpuAcc().supports(view)
    assert not support
    assert reason in support.reason


def test_many_threads_only_where_they_help() -> None:
    helped, hurt, short = ThreadChoice(4), ThreadChoice(4), ThreadChoice(4)
    for choice, seconds in ((helped, {1: 0.1, 4: 0.03}), (hurt, {1: 0.1, 4: 0.2}), (short, {1: 0.001, 4: 0})):
        for _ in range(9):
            choice.note(choice.wanted, seconds[choice.wanted])
    assert (helped.wanted, hurt.wanted, short.wanted) == (4, 1, 1)
    single = ThreadChoice(1)
    for _ in range(9):
        single.note(1, 9.0)
    assert single.wanted == 1


def test_the_package_is_imported_late() -> None:
    code = "import sys; from driver.backends import registry; registry.ids(); print('ai_edge_litert' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    assert "CpuAcc" in registry.ids()
    with pytest.raises(EngineMissingError, match="backend CpuAcc needs the package ai-edge-litert"):
        registry.create(["CpuAcc"])
    assembly = registry.assemble(["CpuAcc", "CpuRef"])
    assert [backend.id for backend in assembly.backends] == ["CpuRef"]
    failed = next(report for report in assembly.reports if report.id == "CpuAcc")
    assert failed.state is State.FAILED and "needs the package ai-edge-litert" in failed.reason


def lists(case: Case) -> list[Any]:
    model, arrays = one_operation(case)
    outcome = outcome_of(model, "CpuAcc")
    return [array.tolist() for array in execute(outcome, arrays)[1]]


def boolean(value: bool) -> Value:
    return Operand(T.BOOL), value


def test_hand_cases_of_what_the_engine_does_otherwise() -> None:
    # integers are divided downwards
    assert lists(Case(Op.DIV, [int_tensor([-7, 7]), int_tensor([2, 2]), int32(0)], [tensor(T.TENSOR_INT32)])) == [
        [-4, 3]
    ]
    # averages over explicit padding count the image only: 1; (1 + 3) / 2; 3
    window = [int32(1), int32(1), int32(0), int32(0), int32(1), int32(1), int32(2), int32(1), int32(0)]
    row = float_tensor(np.reshape([1.0, 3.0], (1, 1, 2, 1)))
    assert np.ravel(lists(Case(Op.AVERAGE_POOL_2D, [row, *window], [OUT]))).tolist() == [1, 2, 3]
    # neighbours of a small scale differ
    fine = tensor(T.TENSOR_QUANT8_ASYMM, (2,), 0.001, 0)
    assert lists(Case(Op.LESS, [(fine, [1, 2]), (fine, [2, 2])], [tensor(T.TENSOR_BOOL8)])) == [[True, False]]
    # 8-bit numbers are clamped
    assert lists(Case(Op.CAST, [float_tensor([-1.5, 3.9, 300])], [tensor(T.TENSOR_QUANT8_ASYMM, (), 1.0)])) == [
        [0, 3, 255]
    ]
    # another alpha than 1
    (found,) = lists(Case(Op.ELU, [float_tensor([-1.0, 2.0]), (Operand(T.FLOAT32), 2.0)], [OUT]))
    assert found == pytest.approx([2 * np.expm1(-1), 2])
    # nothing left of a shape is [1]
    case = Case(Op.ARGMAX, [float_tensor([1.0, 5.0, 5.0]), int32(0)], [tensor(T.TENSOR_INT32)])
    assert lists(case) == [[1]]
    # values in half precision are rounded after each operation
    half = tensor(T.TENSOR_FLOAT16, (1,))
    assert lists(Case(Op.ADD, [(half, [2048.0]), (half, [1.0]), int32(0)], [tensor(T.TENSOR_FLOAT16)])) == [[2048]]
    # signed weights with a zero point: (3 - 1) * (2 - 1) * 0.25 + 0 in steps of 0.5
    x, w = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (1, 1), 0.5, 1), tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (1, 1), 0.5, 1)
    bias, out = tensor(T.TENSOR_INT32, (1,), 0.25), tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (), 0.5, 0)
    case = Case(Op.FULLY_CONNECTED, [(x, [[3]]), (w, [[2]]), (bias, [0]), int32(0)], [out], frozenset({1, 2}))
    assert lists(case) == [[[1]]]
    # a dropped dimension, backwards: positions 2, 1
    vectors = [int_tensor(v) for v in ([0, 2], [1, 0], [1, -1])]
    case = Case(
        Op.STRIDED_SLICE, [float_tensor([[4, 5, 6]]), *vectors, *map(int32, (0, 0, 1))], [OUT], frozenset({1, 2, 3})
    )
    assert lists(case) == [[6, 5]]
    # channels last in the engine: [[1, 2], [3, 4]] by 2 * 2 windows
    square = float_tensor(np.reshape([1.0, 2, 3, 4], (1, 1, 2, 2)))
    arguments = [int32(2), *map(int32, (1, 1, 2, 2, 0)), boolean(True)]
    assert lists(Case(Op.MAX_POOL_2D, [square, *arguments], [OUT])) == [[[[[4]]]]]
