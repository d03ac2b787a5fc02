"""Regions of the LiteRT extension on GpuAcc: those that it claims have LiteRT's results, others have a reason."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import AnyArray, DataLocation, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as HalOp
from nnhal_driver.backends.engine_process import EngineHosting
from nnhal_driver.backends.gpu import regions
from nnhal_driver.backends.gpu.backend import GpuAcc
from nnhal_driver.backends.gpu.measurement import is_exact
from nnhal_driver.backends.options import BackendOptions
from nnhal_driver.backends.registry import create
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from nnhal_driver.graph import build_graphs
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.backends.gpu.models import OPTIONS, view_of
from tests.driver.backends.gpu.regions import RANDOM_VALUES, RandomRegion, run_litert
from tests.driver.backends.gpu.software_gpu import NAME, gpu, gpu_device, require_software_gpu
from tests.driver.backends.litert.support.regions import region
from tests.driver.one_operation import execute, prepare
from tests.nnhal.litert.corpus import with_shapes
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options, quant
from tests.nnhal.tflite.corpus.cases import GENERATORS, Case, cases
from tests.nnhal.tflite.corpus.exceptions import crash, litert_error

SHAPE = (1, 2, 3, 4)
ADAPTER = BackendOptions({"adapter": NAME, "placement": "always"})
SHARED = EngineHosting(is_shared=True)


@pytest.fixture(autouse=True)
def _software_gpu() -> None:
    require_software_gpu()


@pytest.fixture
def shared_worker() -> Iterator[Device]:
    """Yield a device of a worker of several clients."""
    device = Device("shared", [GpuAcc(ADAPTER), *create(["CpuAcc"])], host=DeviceHost(engines=SHARED))
    yield device
    device.close()


def chain(slope: float = 0.3) -> bytes:
    """Return mirrored, rounded and squared differences, which NNAPI lacks."""
    x, y = Tensor(SHAPE), Tensor(SHAPE)
    leaky, rounded, squared, reverse = (Tensor(SHAPE) for _ in range(4))
    return build(
        Op("LEAKY_RELU", [x], [leaky], options("LeakyRelu", alpha=slope)),
        Op("ROUND", [y], [rounded]),
        Op("SQUARED_DIFFERENCE", [leaky, rounded], [squared], options("SquaredDifference")),
        Op("REVERSE_V2", [squared, ints(2)], [reverse], options("ReverseV2")),
        inputs=[x, y],
    )


def backends_of(outcome: Outcome) -> set[str]:
    assert outcome.prepared_model is not None, outcome.reason
    return {operation.backend for operation in outcome.prepared_model.placement.operations}


def assert_close(actual: Sequence[AnyArray], expected: Sequence[AnyArray]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        finite = np.abs(theirs[np.isfinite(theirs)])
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * float(finite.max(initial=0)))


def values(*shapes: tuple[int, ...], seed: int = 7) -> list[AnyArray]:
    random = np.random.default_rng(seed)
    return [random.uniform(-3, 3, shape).astype(np.float32) for shape in shapes]


def test_region_runs_on_the_gpu() -> None:
    outcome = prepare(region(chain()), gpu_device())
    assert backends_of(outcome) == {"GpuAcc"}
    inputs = values(SHAPE, SHAPE)
    assert_close(execute(outcome, inputs)[1], run_litert(chain(), inputs))


def test_region_joins_an_operation_with_constants_in_float16() -> None:
    model, weights = region(chain()), np.linspace(-1, 1, 4, dtype=np.float16)
    constant, x, y, result = model.main.operands
    start = len(model.operand_values)
    data = bytes(model.operand_values) + weights.tobytes() + bytes(4)
    lifetime = OperandLifeTime.CONSTANT_COPY
    half = Operand(T.TENSOR_FLOAT16, (4,), lifetime=lifetime, location=DataLocation(0, start, 8))
    wide = Operand(T.TENSOR_FLOAT32, (4,), lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
    plain = Operand(T.INT32, lifetime=lifetime, location=DataLocation(0, start + 8, 4))
    total = replace(x, lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
    (operation,) = model.main.operations
    operations = (Operation(HalOp.CAST, (4,), (5,)), Operation(HalOp.ADD, (7, 5, 6), (1,)), operation)
    main = Subgraph((constant, total, y, result, half, wide, plain, x), operations, (7, 2), model.main.output_indexes)
    outcome = prepare(replace(model, main=main, operand_values=data), gpu_device())
    assert backends_of(outcome) == {"GpuAcc"}
    first, second = values(SHAPE, SHAPE)
    expected = run_litert(chain(), [first + weights.astype(np.float32), second])
    assert_close(execute(outcome, [first, second])[1], expected)


def test_saved_region_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = region(chain()), values(SHAPE, SHAPE)
    saved = gpu().compile(view_of(model), OPTIONS).save()
    assert saved is not None
    monkeypatch.setattr(regions, "GpuSubgraph", None)
    loaded, memory = gpu().load(view_of(model), saved, OPTIONS), gpu()._memory
    (result,) = loaded.compute([memory.to_own(array) for array in inputs])  # type: ignore[attr-defined]
    assert_close([memory.to_host(result)], run_litert(chain(), inputs))


def test_equal_regions_have_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def counted(*arguments: object) -> bool:
        tried.append(1)
        return is_exact(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(regions, "is_exact", counted)
    for slope in (0.71, 0.72, 0.71):
        (graph,) = build_graphs(region(chain(slope)))
        assert gpu().supports(graph.operations[0])
    assert len(tried) == 2


def test_worker_of_several_clients_runs_no_region(shared_worker: Device) -> None:
    outcome = prepare(region(chain()), shared_worker)
    assert backends_of(outcome) == {"CpuAcc"}
    assert outcome.prepared_model is not None
    (refusal,) = outcome.prepared_model.placement.operations[0].refusals
    assert refusal.reason.startswith("this worker serves several clients")
    assert refusal.nearest == "a worker of one client"


def test_worker_of_several_clients_loads_no_region(shared_worker: Device) -> None:
    model = region(chain())
    saved = gpu().compile(view_of(model), OPTIONS).save()
    assert saved is not None
    with pytest.raises(HalError, match="this worker serves several clients"):
        shared_worker.backends[0].load(view_of(model), saved, OPTIONS)


X, Y = Tensor((2, 3)), Tensor((2, 3))


def one(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor] = (Y,), table: object = None) -> Model:
    return region(build(Op(name, inputs, outputs, table)))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (one("SQRT", [X]), ""),
        (one("SIN", [X]), "the GPU computes this region in another way than LiteRT"),
        (
            one("CUMSUM", [X, Tensor((), "INT32", 0)], table=options("Cumsum")),
            "the GPU computes this region in another",
        ),
        (one("ZEROS_LIKE", [X]), "the GPU accelerator does not take this region: GpuAcc cannot"),
        (one("FLOOR_DIV", [X, Tensor((2, 3))]), "the trial of this region failed: Division by 0"),
        (one("QUANTIZE", [X], [quant((2, 3))]), "the GPU computes TENSOR_FLOAT32 and TENSOR_FLOAT16 only"),
        (one("ABS", [Tensor((2, 3), "INT16")], [Tensor((2, 3), "INT16")]), "the GPU computes TENSOR_FLOAT32 and"),
        (
            region(build(Op("CAST", [X], [mid := Tensor((2, 3), "INT32")]), Op("CAST", [mid], [Y]))),
            "the GPU computes regions of FLOAT32; this one has FLOAT32, INT32",
        ),
        (region(build(Op("SQRT", [X], [Y])), is_dynamic=True), "the shapes are not known before execution"),
        (one("TRANSPOSE", [X, ints(-1, 0)], [Tensor((3, 2))]), "the GPU accelerator ends the process for such a TRANS"),
        (
            one("SPLIT", [Tensor((), "INT32", 0), X], table=options("Split", numSplits=1)),
            "the GPU accelerator ends the process for such a SPLIT",
        ),
    ],
)
def test_refusals_have_a_reason(model: Model, reason: str) -> None:
    (graph,) = build_graphs(model)
    support = gpu().supports(graph.operations[0])
    assert bool(support) == (not reason)
    assert support.reason.startswith(reason)


def check_random_region(seed: int) -> bool:
    """Compare a region with LiteRT on values that its trial has not seen. Return whether the GPU claims it."""
    drawn = RandomRegion(seed)
    outcome = prepare(region(drawn.data), gpu_device("CpuAcc"))
    if backends_of(outcome) != {"GpuAcc"}:
        return False
    for scale in RANDOM_VALUES:
        inputs = drawn.inputs(scale)
        assert_close(execute(outcome, inputs)[1], run_litert(drawn.data, inputs))
    return True


def test_some_random_regions_have_the_results_of_litert() -> None:
    assert sum(map(check_random_region, range(6))) > 0


@pytest.mark.nightly
def test_random_regions_have_the_results_of_litert() -> None:
    assert sum(map(check_random_region, range(6, 400))) > 50


def float_cases(operator: str) -> Iterator[Case]:
    """Yield the models of an operator whose inputs and outputs are float32."""
    for case in cases(operator):
        types = {tensor.type for tensor in (*case.inputs(), *case.op.outputs)}
        if types == {"FLOAT32"} and case.inputs() and not crash(case.name) and not litert_error(case.name):
            yield case


@pytest.mark.nightly
def test_regions_of_the_corpus_have_the_results_of_litert() -> None:
    claimed: set[str] = set()
    for operator in sorted(GENERATORS):
        for case in float_cases(operator):
            try:
                data = with_shapes(case).model()
                model = region(data)
            except (RuntimeError, ValueError):
                continue  # LiteRT refuses it
            (graph,) = build_graphs(model)
            if gpu().supports(graph.operations[0]):
                claimed.add(operator)
                inputs = case.arrays()
                assert_close(execute(prepare(model, gpu_device()), inputs)[1], run_litert(data, inputs))
    assert len(claimed) > 40
