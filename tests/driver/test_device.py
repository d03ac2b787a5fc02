"""Device: description, preparation and execution, in process."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import (
    BufferToken,
    DataLocation,
    DeviceType,
    ErrorStatus,
    ExecutionConfig,
    Memory,
    Model,
    OperandType,
    PrepareModelConfig,
    Request,
    RequestArgument,
    ReturnedPool,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, OperationView, SubgraphView, Support
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import now_ns
from tests.concurrency import run_concurrently
from tests.driver.blocking_backend import TWICE as ADD
from tests.driver.blocking_backend import X
from tests.driver.fake_backend import chain
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import device, execute, int32, model_of, prepare, run, tensor

A = np.array([1, 2], np.float32)


class Partial(CpuRef):
    """CpuRef that supports only the first four operations."""

    id = "Partial"

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.index < 4 else Support("only the first four", "ADD")


class Broken(Backend):
    """Backend that supports all operations and fails to compile them."""

    id = "Broken"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        raise RuntimeError("out of luck")


@pytest.fixture
def mixed() -> Iterator[Device]:
    device = Device("mixed", [Partial(), CpuRef()])
    yield device
    device.close()


def test_description() -> None:
    assert device().get_type() == DeviceType.CPU
    assert "CpuRef/" in device().get_version_string()
    capabilities = device().get_capabilities()
    types = [entry.type for entry in capabilities.operand_performance]
    assert types == sorted(set(types))
    assert OperandType.SUBGRAPH not in types
    assert all(entry.info.exec_time > 0 and entry.info.power_usage > 0 for entry in capabilities.operand_performance)


def test_supported_operations_of_an_invalid_model() -> None:
    with pytest.raises(HalError) as caught:
        device().get_supported_operations(GivenModel(Model(Subgraph((), (), (), ()))))
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-SUBGRAPH-01")


def test_operations_go_to_the_first_backend_that_supports_them(mixed: Device) -> None:
    outcome = prepare(chain(*[Op.ADD] * 6), mixed)
    assert [(p.backend, p.operations) for p in outcome.placement.partitions] == [
        ("Partial", (0, 1, 2, 3)),
        ("CpuRef", (4, 5)),
    ]
    fifth = outcome.placement.operations[4]
    assert (fifth.backend, fifth.refusals[0].backend, fifth.refusals[0].reason) == (
        "CpuRef",
        "Partial",
        "only the first four",
    )
    np.testing.assert_array_equal(execute(outcome, [A])[1][0], 7 * A)


def test_unsupported_operation_is_reported_by_the_callback() -> None:
    outcome = prepare(chain(Op.ADD, 0x10001))
    assert (outcome.status, outcome.prepared_model) == (ErrorStatus.GENERAL_FAILURE, None)
    assert "operation 1 of main" in outcome.reason
    supported, _ = device().get_supported_operations(GivenModel(chain(Op.ADD, 0x10001)))
    assert supported == [True, False]


def test_failing_backend_is_reported_by_the_callback(caplog: pytest.LogCaptureFixture) -> None:
    broken = Device("broken", [Broken()])
    outcome = prepare(ADD, broken)
    broken.close()
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "RuntimeError: out of luck" in outcome.reason


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (PrepareModelConfig(preference=3), "V-PREP-01"),
        (PrepareModelConfig(priority=-1), "V-PREP-02"),
        (PrepareModelConfig(deadline_ns=-2), "V-PREP-03"),
    ],
)
def test_invalid_arguments_are_raised_and_reported_by_the_callback(config: PrepareModelConfig, rule: str) -> None:
    outcomes: list[Outcome] = []
    with pytest.raises(HalError) as caught:
        launch_preparation(device(), ADD, outcomes.append, config)
    assert caught.value.rule == rule
    assert [(o.status, o.rule) for o in outcomes] == [(ErrorStatus.INVALID_ARGUMENT, rule)]


def test_past_deadline_is_reported_by_the_callback_only() -> None:
    outcomes: list[Outcome] = []
    called = threading.Event()
    launch_preparation(device(), ADD, lambda o: (outcomes.append(o), called.set()), PrepareModelConfig(deadline_ns=0))  # type: ignore[func-returns-value, arg-type]
    assert called.wait(60)
    assert [o.status for o in outcomes] == [ErrorStatus.MISSED_DEADLINE_PERSISTENT]


def test_defect_of_the_driver_is_logged_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise IndexError("a defect")

    monkeypatch.setattr("nnhal_driver.preparation.model_preparer.place_and_compile", fail)
    outcome = prepare(ADD)
    assert (outcome.status, outcome.reason) == (ErrorStatus.GENERAL_FAILURE, "the driver failed: IndexError: a defect")
    assert "a preparation failed" in caplog.text


def test_execution_deadlines() -> None:
    prepared = prepare(ADD).prepared_model
    assert prepared is not None
    request = request_of([A, A])
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(request, call=ExecutionCall(now_ns() - 1))
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert prepared.execute_synchronously(request, call=ExecutionCall(2**63 - 1)).output_sufficient_size


def request_of(arrays: list[np.ndarray[tuple[int], np.dtype[np.float32]]], pool: object = None) -> Request:
    """Return a request with each input in a pool of its own, and the output in the last pool."""
    pools = [Memory.of(array) for array in arrays]
    arguments = tuple(RequestArgument(False, DataLocation(i, 0, a.nbytes)) for i, a in enumerate(arrays))
    return Request(arguments, (RequestArgument(False, DataLocation(len(pools))),), (*pools, pool or ReturnedPool()))  # type: ignore[arg-type]


def test_outputs_are_written_to_their_region_only() -> None:
    prepared = prepare(ADD).prepared_model
    assert prepared is not None
    buffer = np.full(32, 0xAB, np.uint8)
    request = request_of([A, A])
    output = RequestArgument(False, DataLocation(2, 8, 8, padding=8))
    result = prepared.execute_synchronously(Request(request.inputs, (output,), (*request.pools[:2], Memory(buffer))))
    assert result.returned == ()
    np.testing.assert_array_equal(buffer[8:16].view(np.float32), 2 * A)
    assert set(buffer[:8]) == set(buffer[16:]) == {0xAB}


def test_too_small_region_is_a_result() -> None:
    unknown = tensor(T.TENSOR_FLOAT32, (0,))
    prepared = prepare(model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [unknown], constants=False)).prepared_model
    assert prepared is not None
    request = request_of([A, A])
    for size, sufficient in ((7, False), (8, True), (12, True)):
        output = RequestArgument(False, DataLocation(2, 0, size))
        result = prepared.execute_synchronously(
            Request(request.inputs, (output,), (*request.pools[:2], ReturnedPool(16)))
        )
        assert result.output_sufficient_size == sufficient
        assert [(shape.dimensions, shape.is_sufficient) for shape in result.output_shapes] == [((2,), sufficient)]
        if sufficient:
            assert result.returned[0] is not None
            np.testing.assert_array_equal(result.returned[0].view(np.float32), 2 * A)
        else:
            assert result.returned == ()


def test_timing_is_measured_only_if_requested() -> None:
    prepared = prepare(ADD).prepared_model
    assert prepared is not None
    plain = prepared.execute_synchronously(request_of([A, A])).timing
    measured = prepared.execute_synchronously(request_of([A, A]), ExecutionConfig(measure_timing=True)).timing
    assert (plain.time_on_device_ns, plain.time_in_driver_ns) == (-1, -1)
    assert 0 < measured.time_on_device_ns <= measured.time_in_driver_ns


def test_required_argument_without_value_fails() -> None:
    with pytest.raises(HalError, match="input1 has no value") as caught:
        run(Op.ADD, [(X, A), (X, None), int32(0)], [X])
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.GENERAL_FAILURE, "V-RUN-01")


def test_omitted_output_fails() -> None:
    prepared = prepare(ADD).prepared_model
    assert prepared is not None
    request = request_of([A, A])
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(Request(request.inputs, (RequestArgument(True),), request.pools))
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.GENERAL_FAILURE, "V-RUN-01")


def test_output_shape_that_differs_from_the_declared_one_fails() -> None:
    with pytest.raises(HalError) as caught:
        run(Op.ADD, [(X, A), (X, A), int32(0)], [tensor(T.TENSOR_FLOAT32, (3,))])
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.GENERAL_FAILURE, "V-RUN-04")


def test_unknown_input_shapes_come_from_the_request() -> None:
    unknown = tensor(T.TENSOR_FLOAT32, (0,))
    for n in (1, 5, 3):
        data = np.arange(n, dtype=np.float32)
        out = run(Op.ADD, [(unknown, data), (unknown, data), int32(0)], [unknown])
        np.testing.assert_array_equal(out[0], 2 * data)


def test_unknown_token_is_rejected() -> None:
    prepared = prepare(ADD).prepared_model
    assert prepared is not None
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(request_of([A, A], BufferToken(100)))
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-REQ-02")


def test_one_model_runs_with_several_shapes_at_once() -> None:
    rows = tensor(T.TENSOR_FLOAT32, (0, 3))
    prepared = prepare(model_of(Op.RELU, [(rows, 0)], [rows], constants=False))

    def work(seed: int) -> None:
        for count in range(1, 8):
            data = np.full((count, 3), seed - 4, np.float32)
            np.testing.assert_array_equal(execute(prepared, [data])[1][0], np.maximum(data, 0))

    run_concurrently(8, work)


def test_concurrent_threads_prepare_and_execute() -> None:
    def work(seed: int) -> None:
        for n in range(10):
            data = np.full(2, seed * 10 + n, np.float32)
            out = execute(prepare(chain(Op.ADD, Op.ADD)), [data])[1][0]
            np.testing.assert_array_equal(out, 3 * data)

    run_concurrently(12, work)
