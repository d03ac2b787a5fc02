"""GpuAcc on SwiftShader: placement by measurement, saved programs, and tensors that stay on the GPU."""

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nnhal import ModelBuilder
from nnhal.errors import HalError
from nnhal.types import (
    AnyArray,
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    Memory,
    Model,
    Request,
    RequestArgument,
    ReturnedPool,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.gpu import engine
from nnhal_driver.backends.gpu.litert_api import READ
from nnhal_driver.backends.gpu.measurement import Measurement, _difference, measure
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.compilation import cost
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.plan import Intermediate, RunContext
from nnhal_driver.execution.prepared_model import DEFAULT_CONFIG, PreparedModel
from nnhal_driver.execution.returned_values import returned_request
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE
from tests.driver.backends.gpu.models import IMAGE, OPTIONS, convolution, view_of
from tests.driver.backends.gpu.software_gpu import gpu, gpu_device, require_software_gpu
from tests.driver.one_operation import execute, prepare, tensor

OUT = tensor(T.TENSOR_FLOAT32)


@pytest.fixture(autouse=True)
def _software_gpu() -> None:
    require_software_gpu()


def compiled(model: Model) -> GpuSubgraph:
    result = gpu().compile(view_of(model), OPTIONS)
    assert isinstance(result, GpuSubgraph)
    return result


def run_on_gpu(subgraph: GpuSubgraph, array: AnyArray) -> AnyArray:
    memory = gpu()._memory
    return memory.to_host(subgraph.compute([memory.to_own(array)])[0])


def test_slower_gpu_is_refused_with_the_figures() -> None:
    outcome = prepare(convolution(), gpu_device("CpuAcc", placement="measured"))
    assert outcome.prepared_model is not None
    (operation,) = outcome.prepared_model.placement.operations
    assert operation.backend == "CpuAcc"
    assert operation.refusals[0].reason.startswith("slower on the GPU: GPU ")


@pytest.mark.parametrize(
    ("measured", "half_precision", "refusal"),
    [
        (Measurement(1e-3, 3e-4, 4e-3, 1e-6), False, ""),
        (Measurement(5e-3, 3e-4, 4e-3, 1e-6), False, "slower on the GPU: GPU 4.70 ms + transfer 0.30, CPU 4.00"),
        (Measurement(1e-3, 3e-4, 4e-3, 2e-2), False, "results of the GPU differ from those of the CPU by 2.0e-02"),
        (Measurement(1e-3, 3e-4, 4e-3, 2e-2), True, ""),
        (Measurement(1e-3, 3e-4, 4e-3, float("nan")), True, "results of the GPU differ from those of the CPU by nan"),
    ],
)
def test_measurement_decides(measured: Measurement, half_precision: bool, refusal: str) -> None:
    assert measured.refusal(half_precision=half_precision).startswith(refusal)
    assert bool(measured.refusal(half_precision=half_precision)) == bool(refusal)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1, np.nan], [1, np.nan], 0),
        ([1, np.inf], [1, np.inf], 0),
        ([1, np.nan], [1, 2], np.inf),
        ([1, 2], [1, np.nan], np.inf),
        ([1, 2], [1, np.inf], np.inf),
        ([1, 4.5], [1, 4], 0.125),
    ],
)
def test_results_that_are_no_numbers_differ(ours: list[float], theirs: list[float], expected: float) -> None:
    computed, reference = ([np.array(values, np.float32)] for values in (ours, theirs))
    assert _difference(computed, reference) == expected


def test_measured_results_agree() -> None:
    assert measure(compiled(convolution()), gpu()._memory).difference < 1e-5


def test_saved_subgraph_has_its_programs() -> None:
    model = convolution()
    first = compiled(model)
    loaded = gpu().load(view_of(model), first.save(), OPTIONS)
    assert isinstance(loaded, GpuSubgraph)
    assert first._gpu.programs and loaded._gpu.programs == first._gpu.programs
    np.testing.assert_array_equal(run_on_gpu(loaded, IMAGE), run_on_gpu(first, IMAGE))


def test_saved_programs_are_not_compiled_again() -> None:
    source, settings = compiled(convolution()).model.file.source, engine.GpuSettings()
    first = engine.GpuModel(source, settings)
    assert not first.has_reused_programs
    assert engine.GpuModel(source, settings, first.programs).has_reused_programs
    other = engine.GpuModel(source, engine.GpuSettings(half_precision=True))
    assert not engine.GpuModel(source, settings, other.programs).has_reused_programs


def test_values_stay_on_the_gpu_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[tuple[object, object]] = []
    memory = gpu()._memory
    copy = type(memory).copy

    def counted(self: engine.GpuMemory, source: object, target: object) -> None:
        copies.append((type(source), type(target)))
        copy(self, source, target)  # type: ignore[arg-type]

    first, second = compiled(convolution(1)), compiled(convolution(2))
    monkeypatch.setattr(type(memory), "copy", counted)
    middle = first.compute([memory.to_own(IMAGE)])
    result = memory.to_host(second.compute(middle)[0])
    assert copies == [(np.ndarray, engine.GpuBuffer), (engine.GpuBuffer, np.ndarray)]
    np.testing.assert_allclose(result, run_on_gpu(second, run_on_gpu(first, IMAGE)))


class Transfers:
    """Sizes of the tensors that the host reads out of the GPU, and of those that it writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[int] = []
        self.written: list[int] = []
        transfer = engine.transfer

        def recorded(buffer: engine.GpuBuffer, array: AnyArray, mode: int) -> None:
            (self.read if mode == READ else self.written).append(buffer.nbytes)
            transfer(buffer, array, mode)

        monkeypatch.setattr(engine, "transfer", recorded)

    def clear(self) -> None:
        """Forget all."""
        self.read.clear()
        self.written.clear()


@pytest.mark.parametrize("placement", ["always", "measured"])
def test_chain_through_a_buffer_moves_no_tensor_to_the_host(monkeypatch: pytest.MonkeyPatch, placement: str) -> None:
    monkeypatch.setattr(Measurement, "refusal", lambda self, half_precision: "")
    device = gpu_device("CpuRef", placement=placement)
    first, second = (prepare(convolution(seed), device).prepared_model for seed in (1, 2))
    assert first is not None and second is not None
    buffer = device.allocate(BufferDesc(), (first, second), (BufferRole(1, 0),), (BufferRole(0, 0),))
    size, transfers = IMAGE.nbytes, Transfers(monkeypatch)
    image, token = RequestArgument(False, DataLocation(0, 0, size)), BufferToken(buffer.token)
    output = RequestArgument(False, DataLocation(1, 0, 0))
    for value in (IMAGE, 2 * IMAGE):
        request = Request((image,), (output,), (Memory.of(value), token))
        first.execute_synchronously(request)
        assert (transfers.written, transfers.read) == ([size], [4])  # the read of one element waits for the GPU
        transfers.clear()
        whole = RequestArgument(False, DataLocation(0))
        result = second.execute_synchronously(Request((whole,), (output,), (token, ReturnedPool())))
        assert (transfers.written, transfers.read) == ([], [size])
        middle = run_on_gpu(compiled(convolution(1)), value)
        np.testing.assert_array_equal(buffer.read().view(np.float32), middle.reshape(-1))
        (data,) = result.returned
        assert data is not None
        expected = run_on_gpu(compiled(convolution(2)), middle)
        np.testing.assert_allclose(data.view(np.float32), expected.reshape(-1), rtol=1e-5)
        transfers.clear()


def test_concurrent_readers_of_a_buffer_agree() -> None:
    memory, subgraph = gpu()._memory, compiled(convolution())
    (value,) = subgraph.compute([memory.to_own(IMAGE)])
    assert memory.keep(value)
    expected, after = memory.to_host(value), run_on_gpu(subgraph, memory.to_host(value))

    def read(number: int) -> None:
        if number % 2:
            np.testing.assert_array_equal(memory.to_host(value), expected)
        else:
            np.testing.assert_array_equal(memory.to_host(subgraph.compute([value])[0]), after)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(40)))


def chain(length: int) -> Model:
    builder = ModelBuilder()
    value = builder.input(T.TENSOR_FLOAT32, (1, 8, 8, 4))
    for _ in range(length):
        value = builder.add(Op.TANH, value, output=tensor(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    builder.output(value)
    return builder.build()


def run_chain(model: PreparedModel, call: ExecutionCall) -> AnyArray | None:
    request = returned_request(model, [IMAGE], [IMAGE.shape])
    return model.execute_valid(request, DEFAULT_CONFIG, call).returned[0]


def test_cancelled_execution_stops_between_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "LONG_STEPS", 1)
    model = prepare(chain(4), gpu_device("CpuRef")).prepared_model
    assert model is not None and len(model.plan.nodes) == 4
    call, runs, run = ExecutionCall(), list[int](), engine.GpuModel.run

    def counted(self: engine.GpuModel, *arguments: Any) -> None:
        runs.append(1)
        run(self, *arguments)
        call.cancellation.cancel()

    monkeypatch.setattr(engine.GpuModel, "run", counted)
    with pytest.raises(HalError, match="cancelled"):
        run_chain(model, call)
    assert len(runs) == 1
    result = run_chain(model, ExecutionCall())
    expected = np.tanh(np.tanh(np.tanh(np.tanh(IMAGE))))
    assert result is not None
    np.testing.assert_allclose(result.view(np.float32), expected.reshape(-1), atol=1e-5)
    assert len(runs) == 5


@pytest.mark.parametrize(("usual_s", "waits"), [(1e-3, 0), (15e-3, 1), (1.0, 3)])
def test_parts_wait_for_as_much_work_as_was_measured(
    monkeypatch: pytest.MonkeyPatch, usual_s: float, waits: int
) -> None:
    memory, parts = gpu()._memory, [compiled(chain(1)) for _ in range(4)]
    kept, keep = list[engine.GpuBuffer](), engine.GpuMemory.keep

    def counted(self: engine.GpuMemory, value: engine.GpuBuffer) -> bool:
        kept.append(value)
        return keep(self, value)

    monkeypatch.setattr(engine.GpuMemory, "keep", counted)
    values: list[Any] = [memory.to_own(IMAGE)]
    for part in parts:
        part._gpu.usual_s = usual_s
        output = Intermediate(IMAGE.shape)
        part.execute(values, [output], RunContext(NO_DEADLINE, Cancellation(), 0))
        values = [output.value]
        part._gpu.usual_s = usual_s
    assert len(kept) == waits


def test_buffers_are_used_again_when_their_execution_is_done() -> None:
    memory = engine.GpuMemory()
    subgraph = GpuSubgraph(view_of(convolution()), OPTIONS, engine.GpuSettings(), memory)
    array = memory.to_own(IMAGE)
    handle = array.handle
    outputs = subgraph.compute([array])
    del array
    assert memory.acquire(IMAGE.shape, IMAGE.dtype).handle != handle  # the GPU may not have read it yet
    memory.to_host(outputs[0])
    del outputs
    gc.collect()
    buffers = [memory.acquire(IMAGE.shape, IMAGE.dtype) for _ in range(3)]
    assert handle in [buffer.handle for buffer in buffers]


def test_concurrent_executions_do_not_mix() -> None:
    subgraph = compiled(convolution())
    arrays = [np.full((1, 8, 8, 4), value, np.float32) for value in range(4)]
    expected = [run_on_gpu(subgraph, array) for array in arrays]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            for actual, wanted in zip(pool.map(lambda a: run_on_gpu(subgraph, a), arrays), expected, strict=True):
                np.testing.assert_array_equal(actual, wanted)


def test_models_split_between_gpu_and_cpu() -> None:
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, (1, 8, 8, 4))
    y = builder.add(Op.RELU, x, output=tensor(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    z = builder.add(Op.L2_NORMALIZATION, y, output=tensor(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    builder.output(builder.add(Op.TANH, z, output=tensor(T.TENSOR_FLOAT32, (1, 8, 8, 4))))
    model = builder.build()
    outcome, plain = prepare(model, gpu_device("CpuAcc", "CpuRef")), prepare(model)
    assert outcome.prepared_model is not None
    placed = [operation.backend for operation in outcome.prepared_model.placement.operations]
    assert placed[0] == "GpuAcc" or "merged" in outcome.prepared_model.placement.operations[0].refusals[0].reason
    np.testing.assert_allclose(execute(outcome, [IMAGE])[1][0], execute(plain, [IMAGE])[1][0], atol=1e-5)
