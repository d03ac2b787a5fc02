"""CpuAcc without its converters: rejections, constants, shapes, threads and failures of the engine."""

import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import ExecutionPreference, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import CompileOptions, SubgraphView
from nnhal_driver.backends.litert import subgraph
from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.backends.litert.convert import convert
from nnhal_driver.backends.litert.engine import EngineMissingError, Interpreter
from nnhal_driver.backends.litert.subgraph import LitertSubgraph
from nnhal_driver.backends.litert.threads import ThreadChoice
from nnhal_driver.backends.report import CandidateState
from nnhal_driver.device import Device
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.backends.litert.support.models import one_operation
from tests.driver.backends.litert.support.samples import Case
from tests.driver.litert_kernels import schema
from tests.driver.one_operation import Value, execute, float_tensor, int32, int_tensor, prepare, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

OUT = tensor(T.TENSOR_FLOAT32)
FLOATS = float_tensor(np.arange(12.0).reshape(1, 2, 3, 2))


def prepare_case(case: Case | Model, *backends: str) -> Outcome:
    model = case if isinstance(case, Model) else one_operation(case)[0]
    return prepare(model, Device("test", registry.create(backends or ("CpuAcc", "CpuRef"))))


def fully_connected(rows: int) -> Case:
    """Return a FULLY_CONNECTED with constant weights. 0 rows mean an unknown number of rows."""
    random = np.random.default_rng(1)
    weights, bias = float_tensor(random.standard_normal((64, 32))), float_tensor(random.standard_normal(64))
    x = tensor(T.TENSOR_FLOAT32, (rows, 32)), np.zeros((max(rows, 1), 32))
    return Case(Op.FULLY_CONNECTED, [x, weights, bias, int32(1)], [OUT], frozenset({1, 2}))


def test_constants_follow_the_flatbuffer() -> None:
    graph = build_graphs(one_operation(fully_connected(4))[0])[0]
    built = convert(subgraph_view(graph, [0], relaxed=False), [(4, 32)], 2**32)
    data = built.file.contents().tobytes()
    model = schema().ModelT.InitFromObj(schema().Model.GetRootAs(data, 0))
    locations = [(buffer.offset, buffer.size) for buffer in model.buffers if buffer.offset]
    assert all(buffer.data is None for buffer in model.buffers)
    weights = graph.constants[1].tobytes()
    assert (data.index(weights), len(weights)) in locations
    assert all(offset % 64 == 0 for offset, _ in locations)


def test_threads_share_one_model() -> None:
    outcome = prepare_case(fully_connected(3))
    weights, bias = (np.asarray(value, np.float32) for _, value in fully_connected(3).inputs[1:3])

    def results_are_correct(seed: int) -> bool:
        random = np.random.default_rng(seed)
        for _ in range(50):
            x = random.standard_normal((3, 32)).astype(np.float32)
            (actual,) = execute(outcome, [x])[1]
            if not np.allclose(actual, np.maximum(x @ weights.T + bias, 0), atol=1e-4):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(results_are_correct, range(8)))


def test_number_of_interpreters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreters: list[Interpreter] = []

    def create(model: bytes | str, threads: int) -> Interpreter:
        interpreters.append(Interpreter(model, threads))
        return interpreters[-1]

    monkeypatch.setattr(subgraph, "Interpreter", create)
    monkeypatch.setattr(subgraph, "available_cpus", lambda: 2)
    outcome = prepare_case(fully_connected(3))
    x = np.zeros((3, 32), np.float32)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: execute(outcome, [x]), range(64)))
    assert 1 <= len(interpreters) <= 2


def test_idle_interpreter_is_freed_before_one_with_more_threads_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[weakref.ref[Interpreter]] = []
    choices: list[ThreadChoice] = []

    def create(model: bytes | str, threads: int) -> Interpreter:
        assert not any(each() for each in created), "both hold the packed weights"
        interpreter = Interpreter(model, threads)
        created.append(weakref.ref(interpreter))
        return interpreter

    def choose(limit: int) -> ThreadChoice:
        choices.append(ThreadChoice(limit))
        return choices[-1]

    monkeypatch.setattr(subgraph, "Interpreter", create)
    monkeypatch.setattr(subgraph, "ThreadChoice", choose)
    outcome, x = prepare_case(fully_connected(3)), np.zeros((3, 32), np.float32)
    for threads in (1, 2, 1):
        choices[0].threads = threads
        execute(outcome, [x])
    assert len(created) == 3


def test_operator_limits_the_threads_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def choose(limit: int) -> ThreadChoice:
        limits.append(limit)
        return ThreadChoice(limit)

    monkeypatch.setattr(subgraph, "ThreadChoice", choose)
    monkeypatch.setattr(subgraph, "available_cpus", lambda: 2)
    model, options = one_operation(fully_connected(3))[0], [{}, {"threads": "3"}, {"threads": "0"}]
    devices = [Device("test", registry.assemble(["CpuAcc"], options={"CpuAcc": each}).backends) for each in options]
    for device in devices:
        prepare(model, device)
        device.close()
    assert limits == [2, 3, 2]
    assert len({device.get_version_string() for device in devices}) == 1, "saved models do not depend on it"


@pytest.mark.parametrize(
    ("preference", "threads"),
    [
        (ExecutionPreference.LOW_POWER, 1),
        (ExecutionPreference.FAST_SINGLE_ANSWER, 3),
        (ExecutionPreference.SUSTAINED_SPEED, 1),
    ],
)
def test_only_a_fast_single_answer_has_several_threads(
    monkeypatch: pytest.MonkeyPatch, preference: ExecutionPreference, threads: int
) -> None:
    limits: list[int] = []

    def choose(limit: int) -> ThreadChoice:
        limits.append(limit)
        return ThreadChoice(limit)

    monkeypatch.setattr(subgraph, "ThreadChoice", choose)
    graph = build_graphs(one_operation(fully_connected(4))[0])[0]
    LitertSubgraph(subgraph_view(graph, [0], relaxed=False), CompileOptions(preference), max_threads=3)
    assert limits == [threads]


def test_unknown_batch_size_is_set_at_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[LitertSubgraph] = []

    def compile_(_: CpuAcc, subgraph: SubgraphView, options: CompileOptions) -> LitertSubgraph:
        compiled.append(LitertSubgraph(subgraph, options))
        return compiled[-1]

    monkeypatch.setattr(CpuAcc, "compile", compile_)
    monkeypatch.setattr(LitertSubgraph, "_fall_back", lambda self: pytest.fail("the engine did not run"))
    outcome = prepare_case(fully_connected(0))
    weights, bias = (np.asarray(value, np.float32) for _, value in fully_connected(0).inputs[1:3])
    for rows in (1, 5, 2, 5, 9, 1, 7, 3, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32)
        (actual,) = execute(outcome, [x])[1]
        np.testing.assert_allclose(actual, np.maximum(x @ weights.T + bias, 0), atol=1e-4)
    assert len(compiled[0].pools) == 4


@pytest.mark.parametrize("error", [RuntimeError("failed to allocate"), MemoryError()])
def test_cpu_ref_takes_over_after_an_engine_failure(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    outcome = prepare_case(Case(Op.FLOOR, [float_tensor([1.5, -1.5])], [OUT]))
    monkeypatch.setattr(Interpreter, "invoke", fail)
    (actual,) = execute(outcome, [np.array([1.5, -1.5], np.float32)])[1]
    assert actual.tolist() == [1, -2]
    assert "CpuRef runs main: LiteRT failed" in caplog.text


def test_cpu_ref_gets_copies_of_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine copies its inputs, so the host does not. CpuRef must not read a client's memory in its place."""
    x = np.array([1.5, -1.5], np.float32)
    seen: list[Any] = []

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("failed")

    def fall_back_and_record(self: LitertSubgraph) -> Any:
        reference = fall_back(self)
        run = reference.execute

        def execute_and_record(inputs: list[Any], *rest: Any) -> None:
            seen.extend(inputs)
            run(inputs, *rest)

        monkeypatch.setattr(reference, "execute", execute_and_record)
        return reference

    outcome = prepare_case(Case(Op.FLOOR, [float_tensor([1.5, -1.5])], [OUT]))
    fall_back = LitertSubgraph._fall_back
    monkeypatch.setattr(LitertSubgraph, "_fall_back", fall_back_and_record)
    monkeypatch.setattr(Interpreter, "invoke", fail)
    execute(outcome, [x])
    assert len(seen) == 1 and not np.shares_memory(seen[0], x)


def test_operations_are_placed_again_if_the_engine_cannot_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Interpreter, path: str, threads: int) -> None:
        raise RuntimeError("failed to allocate")

    monkeypatch.setattr(Interpreter, "__init__", fail)
    outcome = prepare_case(Case(Op.FLOOR, [float_tensor([1.5, -1.5])], [OUT]))
    assert outcome.prepared_model is not None, outcome.reason
    (placed,) = outcome.placement.operations
    assert placed.backend == "CpuRef" and "failed to allocate" in placed.refusals[0].reason
    (actual,) = execute(outcome, [np.array([1.5, -1.5], np.float32)])[1]
    assert actual.tolist() == [1, -2]


_LIMITED_MEMORY = """
import resource, sys
import numpy as np
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
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
    ("megabytes", "stdout", "message"),
    [
        (170, ["CpuAcc", "True"], "CpuRef runs main: LiteRT failed"),  # the engine runs, and its result does not fit
        (90, ["CpuRef"], "RESOURCE_EXHAUSTED_TRANSIENT"),  # the engine cannot load, and CpuRef runs out of memory too
    ],
)
def test_engine_runs_out_of_memory(megabytes: int, stdout: list[str], message: str) -> None:
    command = [sys.executable, "-c", _LIMITED_MEMORY, str(megabytes)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.stdout.split() == stdout, child.stderr
    assert child.returncode == len(stdout) % 2 and message in child.stderr


def test_last_reference_frees_the_memory() -> None:
    outcome = prepare_case(fully_connected(3))
    prepared = outcome.prepared_model
    assert prepared is not None
    gc.collect()
    gc.disable()
    try:
        graph, compiled = weakref.ref(prepared.plan.graph), weakref.ref(prepared.plan.nodes[0])
        del outcome, prepared
        assert graph() is None and compiled() is None, "a reference cycle delays the release"
    finally:
        gc.enable()


def test_errors_equal_those_of_cpu_ref() -> None:
    x, two = float_tensor([[1, 2], [3, 4]]), np.array([0, 2], np.int32)
    gather = Case(Op.GATHER, [x, int32(0), int_tensor([0, 1])], [OUT])
    errors = []
    for backends in (("CpuAcc", "CpuRef"), ("CpuRef",)):
        with pytest.raises(HalError) as error:
            execute(prepare_case(gather, *backends), [np.array([[1, 2], [3, 4]], np.float32), two])
        errors.append((error.value.status, str(error.value)))
    assert errors[0] == errors[1]
    assert "indices lie in 0..2" in errors[0][1]


UNKNOWN = Operand(T.TENSOR_FLOAT32)
REJECTED: list[tuple[Case, str]] = [
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
        "the engine does not multiply matrices of TENSOR_INT32",
    ),
    (Case(Op.MAX_POOL_2D, [FLOATS, *map(int32, (1, 2**30, 1, 1, 1, 0))], [OUT]), "a stride or window has 1073741824"),
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


@pytest.mark.parametrize(("case", "reason"), REJECTED, ids=[f"{Op(c.type).name} {r[:20]}" for c, r in REJECTED])
def test_rejections_have_reasons(case: Case, reason: str) -> None:
    view = build_graphs(one_operation(case)[0])[0].operations[0]
    support = CpuAcc().supports(view)
    assert not support
    assert reason in support.reason


def test_engine_is_imported_on_demand() -> None:
    code = (
        "import sys; from nnhal_driver.backends import registry; registry.registered_ids(); "
        "print('ai_edge_litert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_missing_engine_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    assert "CpuAcc" in registry.registered_ids()
    with pytest.raises(EngineMissingError, match="backend CpuAcc needs the package ai-edge-litert"):
        registry.create(["CpuAcc"])
    assembly = registry.assemble(["CpuAcc", "CpuRef"])
    assert [backend.id for backend in assembly.backends] == ["CpuRef"]
    failed = next(report for report in assembly.reports if report.id == "CpuAcc")
    assert failed.state is CandidateState.FAILED and "needs the package ai-edge-litert" in failed.reason


def run_case(case: Case) -> list[Any]:
    model, arrays = one_operation(case)
    outcome = prepare_case(model, "CpuAcc")
    return [array.tolist() for array in execute(outcome, arrays)[1]]


def boolean(value: bool) -> Value:
    return Operand(T.BOOL), value


def test_differences_between_engine_and_nnapi_are_compensated() -> None:
    # integer division rounds down
    assert run_case(Case(Op.DIV, [int_tensor([-7, 7]), int_tensor([2, 2]), int32(0)], [tensor(T.TENSOR_INT32)])) == [
        [-4, 3]
    ]
    # averages exclude explicit padding: 1, (1 + 3) / 2, 3
    window = [int32(1), int32(1), int32(0), int32(0), int32(1), int32(1), int32(2), int32(1), int32(0)]
    row = float_tensor(np.reshape([1.0, 3.0], (1, 1, 2, 1)))
    assert np.ravel(run_case(Case(Op.AVERAGE_POOL_2D, [row, *window], [OUT]))).tolist() == [1, 2, 3]
    # adjacent values with a small scale differ
    quantized = tensor(T.TENSOR_QUANT8_ASYMM, (2,), 0.001, 0)
    assert run_case(Case(Op.LESS, [(quantized, [1, 2]), (quantized, [2, 2])], [tensor(T.TENSOR_BOOL8)])) == [
        [True, False]
    ]
    # casts to 8 bits saturate
    assert run_case(Case(Op.CAST, [float_tensor([-1.5, 3.9, 300])], [tensor(T.TENSOR_QUANT8_ASYMM, (), 1.0)])) == [
        [0, 3, 255]
    ]
    # ELU with an alpha other than 1
    (actual,) = run_case(Case(Op.ELU, [float_tensor([-1.0, 2.0]), (Operand(T.FLOAT32), 2.0)], [OUT]))
    assert actual == pytest.approx([2 * np.expm1(-1), 2])
    # the reduction of a vector has the shape [1]
    case = Case(Op.ARGMAX, [float_tensor([1.0, 5.0, 5.0]), int32(0)], [tensor(T.TENSOR_INT32)])
    assert run_case(case) == [[1]]
    # half-precision values are rounded after each operation
    half = tensor(T.TENSOR_FLOAT16, (1,))
    assert run_case(Case(Op.ADD, [(half, [2048.0]), (half, [1.0]), int32(0)], [tensor(T.TENSOR_FLOAT16)])) == [[2048]]
    # signed weights with a zero point: (3 - 1) * (2 - 1) * 0.25 + 0 in steps of 0.5
    x, w = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (1, 1), 0.5, 1), tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (1, 1), 0.5, 1)
    bias, out = tensor(T.TENSOR_INT32, (1,), 0.25), tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (), 0.5, 0)
    case = Case(Op.FULLY_CONNECTED, [(x, [[3]]), (w, [[2]]), (bias, [0]), int32(0)], [out], frozenset({1, 2}))
    assert run_case(case) == [[[1]]]
    # a dropped dimension and a negative stride: positions 2, 1
    vectors = [int_tensor(v) for v in ([0, 2], [1, 0], [1, -1])]
    case = Case(
        Op.STRIDED_SLICE, [float_tensor([[4, 5, 6]]), *vectors, *map(int32, (0, 0, 1))], [OUT], frozenset({1, 2, 3})
    )
    assert run_case(case) == [[6, 5]]
    # NCHW, which the engine lacks: [[1, 2], [3, 4]] with a window of 2 x 2
    square = float_tensor(np.reshape([1.0, 2, 3, 4], (1, 1, 2, 2)))
    arguments = [int32(2), *map(int32, (1, 1, 2, 2, 0)), boolean(True)]
    assert run_case(Case(Op.MAX_POOL_2D, [square, *arguments], [OUT])) == [[[[[4]]]]]
