"""Models divided among devices, and what the CPU runs instead of them."""

from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal import ModelBuilder
from nnhal.errors import HalError
from nnhal.types import ErrorStatus, ExecutionPreference, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.execution.plan import CompiledPlan, ComputeOptions
from nnhal_ndk.execution.preparation import CompilationOptions, prepare_for, prepare_with_fallback
from nnhal_ndk.results import NdkError
from tests.driver.backends.litert.support.random_graphs import Sample, graphs
from tests.nnhal.client.fallback.in_process import run_whole
from tests.nnhal.client.fallback.models import X, branching, chain
from tests.nnhal.client.fallback.random_graphs import connected_graphs
from tests.nnhal_ndk.execution.in_process import InProcessDevice

OPTIONS = CompilationOptions()
MODEL = chain(Op.ABS, Op.NEG, Op.FLOOR, Op.EXP)
EXPECTED = run_whole(MODEL, [X])[0]


def run(plan: CompiledPlan) -> None:
    """Check the results of the plan of MODEL."""
    (result,) = plan.run([X], {}, ComputeOptions()).outputs
    np.testing.assert_array_equal(np.asarray(result), EXPECTED)


def operations(device: InProcessDevice) -> list[list[int]]:
    """Return the types of the operations of each model that a device has prepared."""
    return [[operation.type for operation in model.main.operations] for model in device.prepared]


# ---- Division among devices of a list ---------------------------------------------------------------------


def test_each_operation_runs_on_the_fastest_device_that_supports_it() -> None:
    fast, slow = InProcessDevice({Op.NEG, Op.FLOOR}, 0.2), InProcessDevice(exec_time=0.4)
    run(prepare_for([slow.as_device, fast.as_device], MODEL, OPTIONS))
    assert operations(fast) == [[Op.ABS], [Op.EXP]]
    assert operations(slow) == [[Op.NEG, Op.FLOOR]]


@pytest.mark.parametrize(
    ("preference", "winner"), [(ExecutionPreference.LOW_POWER, 0), (ExecutionPreference.SUSTAINED_SPEED, 1)]
)
def test_the_preference_decides_between_power_and_time(preference: ExecutionPreference, winner: int) -> None:
    devices = [InProcessDevice(exec_time=0.5, power_usage=0.2), InProcessDevice(exec_time=0.2, power_usage=0.5)]
    plan = prepare_for([each.as_device for each in devices], MODEL, CompilationOptions(preference))
    assert plan.single is not None
    assert [len(each.prepared) for each in devices] == [winner == 0, winner == 1]


def test_the_first_of_equal_devices_runs_the_whole_model_but_the_cpu_comes_first() -> None:
    devices = [InProcessDevice(exec_time=1.0), InProcessDevice(exec_time=1.0)]
    run(prepare_for([each.as_device for each in devices], MODEL, OPTIONS))
    assert [len(each.prepared) for each in devices] == [1, 0]
    reference = InProcessDevice(is_reference=True)
    run(prepare_for([devices[0].as_device, reference.as_device], MODEL, OPTIONS))
    assert len(reference.prepared) == 1


def test_control_flow_runs_whole_on_the_device_with_the_better_figure() -> None:
    model, (x,) = branching()
    inputs = [x, np.array([True])]
    fast, slow = InProcessDevice(exec_time=0.1), InProcessDevice(exec_time=0.2)
    plan = prepare_for([slow.as_device, fast.as_device], model, OPTIONS)
    for result, expected in zip(plan.run(inputs, {}, ComputeOptions()).outputs, run_whole(model, inputs), strict=True):
        np.testing.assert_array_equal(np.asarray(result), expected)
    assert (len(fast.prepared), len(slow.prepared)) == (1, 0)


def test_a_list_of_devices_has_no_fallback() -> None:
    first, second = InProcessDevice({Op.NEG}), InProcessDevice({Op.NEG, Op.ABS})
    with pytest.raises(NdkError) as unsupported:
        prepare_for([first.as_device, second.as_device], MODEL, OPTIONS)
    assert unsupported.value.code == ResultCode.BAD_DATA
    assert "operation 1" in unsupported.value.reason
    first.dead = ErrorStatus.DEVICE_UNAVAILABLE
    with pytest.raises(HalError, match="the device is dead"):
        prepare_for([first.as_device, second.as_device], MODEL, OPTIONS)


def test_a_part_that_fails_leaves_the_model_to_a_device_that_supports_all_of_it() -> None:
    versatile, fast = InProcessDevice(exec_time=0.9), InProcessDevice({Op.ABS}, 0.1, failing={Op.FLOOR})
    run(prepare_for([fast.as_device, versatile.as_device], MODEL, OPTIONS))
    assert operations(versatile)[-1] == [Op.ABS, Op.NEG, Op.FLOOR, Op.EXP]
    picky = InProcessDevice({Op.NEG}, 0.9)
    with pytest.raises(HalError, match="the device fails"):
        prepare_for([fast.as_device, picky.as_device], MODEL, OPTIONS)


def test_each_part_has_a_token_of_its_own() -> None:
    tokens = []
    for token in (bytes(32), bytes(32), bytes(31) + b"1"):
        devices = [InProcessDevice({Op.NEG}, 0.2), InProcessDevice(exec_time=0.4)]
        options = CompilationOptions(cache=(b"folder", token))
        prepare_for([each.as_device for each in devices], MODEL, options)
        tokens.append([token for device in devices for token in device.tokens])
    assert tokens[0] == tokens[1]
    assert len({*tokens[0], *tokens[2]}) == 6


def test_a_burst_of_a_divided_model_has_a_burst_of_each_part() -> None:
    devices = [InProcessDevice({Op.NEG}, 0.2), InProcessDevice(exec_time=0.4)]
    plan = prepare_for([each.as_device for each in devices], MODEL, OPTIONS)
    burst = plan.burst()
    (result,) = burst.run([X], {}, ComputeOptions()).outputs
    burst.close()
    np.testing.assert_array_equal(np.asarray(result), EXPECTED)
    assert [device.executions for device in devices] == [["burst"] * 2, ["burst"]]
    plan.run([X], {}, ComputeOptions(loop_timeout_s=1))
    devices[1].dead = ErrorStatus.DEVICE_UNAVAILABLE
    with pytest.raises(HalError, match="the device is dead"):
        plan.burst()


# ---- The CPU in the place of a device ---------------------------------------------------------------------


def with_fallback(*devices: InProcessDevice) -> tuple[CompiledPlan, InProcessDevice]:
    """Return the plan of MODEL for all devices, and the reference implementation."""
    reference = InProcessDevice(is_reference=True)
    listed = [device.as_device for device in devices]
    return prepare_with_fallback(listed, reference.as_device, MODEL, OPTIONS), reference


def test_the_only_device_is_not_asked_about_operations() -> None:
    device = InProcessDevice(exec_time=3.0)
    device.supported_operations = None  # type: ignore[assignment, method-assign]
    plan, reference = with_fallback(device)
    run(plan)
    assert plan.single is not None
    assert (len(device.prepared), reference.prepared) == (1, [])


@pytest.mark.parametrize("refused", [{Op.NEG}, {Op.NEG, Op.EXP}])
def test_the_cpu_runs_what_no_device_supports(refused: Collection[int]) -> None:
    for devices in ([InProcessDevice(refused)], [InProcessDevice(refused), InProcessDevice({Op.ABS, *refused})]):
        plan, reference = with_fallback(*devices)
        run(plan)
        assert [type_ for types in operations(reference) for type_ in types] == sorted(refused, key=MODEL_ORDER.index)
        assert operations(devices[0])[0] == [Op.ABS]


MODEL_ORDER = [operation.type for operation in MODEL.main.operations]


def test_a_device_that_fails_to_compile_leaves_everything_to_the_cpu() -> None:
    for device in (InProcessDevice(failing={Op.EXP}), InProcessDevice({Op.NEG}, failing={Op.EXP})):
        plan, reference = with_fallback(device)
        run(plan)
        assert operations(reference)[-1] == MODEL_ORDER
        assert plan.single is not None
    dead = InProcessDevice()
    dead.dead = ErrorStatus.DEVICE_UNAVAILABLE
    run(with_fallback(dead)[0])
    run(with_fallback(dead, dead)[0])
    run(with_fallback()[0])


def test_an_invalid_model_is_not_compiled_for_the_cpu() -> None:
    device = InProcessDevice()
    device.dead = ErrorStatus.INVALID_ARGUMENT
    with pytest.raises(NdkError) as refused:
        with_fallback(device)
    assert refused.value.code == ResultCode.BAD_DATA


@pytest.mark.parametrize("in_burst", [False, True])
def test_the_cpu_repeats_a_failed_execution(in_burst: bool) -> None:
    device = InProcessDevice()
    plan, reference = with_fallback(device)
    target = plan.burst() if in_burst else plan
    device.execution_error = ErrorStatus.GENERAL_FAILURE
    for _ in range(2):
        (result,) = target.run([X], {}, ComputeOptions()).outputs
        np.testing.assert_array_equal(np.asarray(result), EXPECTED)
    assert len(device.executions) == 2
    assert (len(reference.prepared), reference.executions) == (1, ["execute"] * 2)


@pytest.mark.parametrize("status", [ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.INVALID_ARGUMENT])
def test_the_cpu_does_not_repeat_what_must_fail(status: ErrorStatus) -> None:
    device = InProcessDevice()
    plan, reference = with_fallback(device)
    device.execution_error = status
    with pytest.raises(HalError, match="the execution fails"):
        plan.run([X], {}, ComputeOptions())
    assert reference.prepared == []


def test_a_device_without_a_burst_is_used_without_one() -> None:
    device = InProcessDevice()
    plan, _ = with_fallback(device)
    device.dead = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    burst = plan.burst()
    (result,) = burst.run([X], {}, ComputeOptions()).outputs
    burst.close()
    np.testing.assert_array_equal(np.asarray(result), EXPECTED)
    assert device.executions == ["execute"]


def test_an_empty_tensor_between_devices_leaves_the_execution_to_the_cpu() -> None:
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, (2, 3))
    sizes = builder.input(T.TENSOR_INT32, (2,))
    part = builder.add(Op.SLICE, x, np.zeros(2, np.int32), sizes, output=Operand(T.TENSOR_FLOAT32, (0, 3)))
    padded = builder.add(Op.CONCATENATION, part, x, 0, output=Operand(T.TENSOR_FLOAT32, (0, 3)))
    builder.output(padded)
    model = builder.build()
    device, other = InProcessDevice({Op.CONCATENATION}), InProcessDevice(exec_time=0.6)
    inputs = [X, np.array([0, 3], np.int32)]
    with pytest.raises(HalError, match="an empty tensor"):
        prepare_for([device.as_device, other.as_device], model, OPTIONS).run(inputs, {}, ComputeOptions())
    reference = InProcessDevice(is_reference=True)
    plan = prepare_with_fallback([device.as_device], reference.as_device, model, OPTIONS)
    (result,) = plan.run(inputs, {}, ComputeOptions()).outputs
    np.testing.assert_array_equal(np.asarray(result), X)


# ---- Random graphs ----------------------------------------------------------------------------------------


def check_random_graphs(samples: st.SearchStrategy[Sample], count: int) -> int:
    """Compare random graphs on two or three devices with the whole graph, and return the number of divided ones."""
    divided = 0

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(sample=samples, data=st.data())
    def check(sample: Sample, data: st.DataObject) -> None:
        nonlocal divided
        if not sample.expected:
            return
        types = sorted({operation.type for operation in sample.model.main.operations})
        devices = [
            InProcessDevice(data.draw(st.sets(st.sampled_from(types))), data.draw(st.sampled_from([0.1, 0.2, 0.3])))
            for _ in range(data.draw(st.integers(1, 2)))
        ]
        reference = InProcessDevice(is_reference=True)
        plan = prepare_with_fallback([each.as_device for each in devices], reference.as_device, sample.model, OPTIONS)
        results = plan.run(list(sample.inputs), {}, ComputeOptions()).outputs
        divided += plan.single is None
        for result, expected in zip(results, run_whole(sample.model, sample.inputs), strict=True):
            np.testing.assert_array_equal(np.asarray(result), expected)

    check()
    return divided


def test_random_graphs() -> None:
    assert check_random_graphs(connected_graphs(), 60) > 10


@pytest.mark.nightly
def test_many_random_graphs() -> None:
    assert check_random_graphs(connected_graphs(), 1000) > 200
    assert check_random_graphs(graphs(), 300) > 30
