"""Chains of executions over driver-managed buffers: fenced, reusable and in bursts, on every transport.

Intermediate values do not travel to the client.
"""

from collections.abc import Iterator

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.core.session import Transport
from nnhal.client.sync.burst_transport import GrpcBurstTransport
from nnhal.errors import HalError
from nnhal.types import ErrorStatus, FenceState
from nnhal.types import OperandType as T
from tests.driver.one_operation import tensor
from tests.end_to_end.support.buffer_models import OPEN, A, X, add, error_status, relu, split
from tests.end_to_end.support.service_process import Service


@pytest.fixture(scope="module")
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as connected:
        yield connected


# ---- Fenced executions --------------------------------------------------------------------------------------


def test_fenced_chain(device: nnhal.Device) -> None:
    first, second = device.prepare(add(X)).result(60), device.prepare(relu(X)).result(60)
    between = device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
    last = device.allocate(outputs=[(second, 0)])
    for shift in (3, 4):
        start_fence = device.fence()
        sum_fence = first.execute_fenced(
            [A, A - shift], outputs={"sum": between}, wait_for=[start_fence], measure_timing=True
        )
        chained_fence = second.execute_fenced([sum_fence.outputs[0]], outputs=[last])
        waiting_fence = second.execute_fenced([between], wait_for=[sum_fence])
        assert chained_fence.wait(0.02) == FenceState.ACTIVE, "it must wait for the execution whose output it reads"
        start_fence.signal()
        assert chained_fence.result(60)[0] is last
        outputs = sum_fence.result(60)
        assert outputs["sum"] is between
        assert outputs.timing.time_on_device_ns >= 0
        np.testing.assert_array_equal(last.read(), np.maximum(2 * A - shift, 0))
        np.testing.assert_array_equal(waiting_fence.result(60)[0], np.maximum(2 * A - shift, 0))


def test_fenced_outputs_in_buffers_need_no_memory_objects(
    device: nnhal.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = device.prepare(relu(X)).result(60)
    buffer = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
    connection = device._connection
    for name in ("create_memory", "read_memory"):
        monkeypatch.setattr(connection, name, lambda *_: pytest.fail("a memory object was used"))
    prepared.execute_fenced([A - 2], outputs=[buffer]).result(60)
    np.testing.assert_array_equal(buffer.read(), np.maximum(A - 2, 0))


def test_one_of_two_fenced_outputs_in_a_buffer(device: nnhal.Device) -> None:
    prepared = device.prepare(split(X)).result(60)
    top, bottom = (device.allocate(outputs=[(prepared, name)]) for name in ("top", "bottom"))
    fence = prepared.execute_fenced([A], outputs=[top, None])
    outputs = fence.result(60)
    assert outputs["top"] is top
    np.testing.assert_array_equal(np.asarray(outputs["bottom"]), A[1:])
    np.testing.assert_array_equal(top.read(), A[:1])
    outputs = prepared.execute_fenced([A + 1], outputs={"bottom": bottom}).result(60)
    np.testing.assert_array_equal(np.asarray(outputs["top"]), A[:1] + 1)
    np.testing.assert_array_equal(bottom.read(), A[1:] + 1)
    assert error_status(lambda: prepared.execute_fenced([A], outputs=[top])) == ErrorStatus.INVALID_ARGUMENT
    assert error_status(lambda: prepared.execute_fenced([A], outputs={"middle": top})) == ErrorStatus.INVALID_ARGUMENT


def test_buffer_may_fix_the_shape_of_a_fenced_output(device: nnhal.Device) -> None:
    prepared = device.prepare(relu(OPEN)).result(60)
    fixed = device.allocate(outputs=[(prepared, 0)], dimensions=(2, 3))
    dynamic = device.allocate(outputs=[(prepared, 0)])
    with pytest.raises(HalError, match="outputs of fixed shape"):
        prepared.execute_fenced([A], outputs=[dynamic])
    (output,) = prepared.execute_fenced([A - 1], outputs=[fixed]).result(60)
    assert output is fixed
    np.testing.assert_array_equal(fixed.read(), np.maximum(A - 1, 0))


def test_failed_fenced_execution_leaves_its_buffer_uninitialized(device: nnhal.Device) -> None:
    prepared = device.prepare(relu(X)).result(60)
    buffer = device.allocate(outputs=[(prepared, 0)])
    prepared.execute([A], outputs=[buffer])
    start_fence = device.fence()
    failed = prepared.execute_fenced([A], outputs=[buffer], wait_for=[start_fence])
    start_fence.signal(error=True)
    assert error_status(failed.result) == ErrorStatus.GENERAL_FAILURE
    assert error_status(buffer.read) == ErrorStatus.GENERAL_FAILURE


# ---- Reusable executions---------------------------------------------------------------------------------


def test_reusable_execution(device: nnhal.Device) -> None:
    prepared = device.prepare(add(X)).result(60)
    left = device.allocate(inputs=[(prepared, "left"), (prepared, "right")])
    total = device.allocate(outputs=[(prepared, 0)])
    with prepared.reusable({"left": left, "right": A}, outputs=[total], measure_timing=True) as execution:
        assert error_status(execution.run) == ErrorStatus.GENERAL_FAILURE, "an input is uninitialized"
        for value in (1, 2):
            left.write(np.full((2, 3), value, np.float32))
            outputs = execution.run()
            assert outputs["sum"] is total
            assert outputs.timing.time_on_device_ns >= 0
            np.testing.assert_array_equal(total.read(), A + value)
            execution.write({"right": A * value})
            assert execution.run_fenced().result(60)[0] is total
            np.testing.assert_array_equal(total.read(), A * value + value)
            execution.write({"right": A})
        with pytest.raises(HalError, match="input left cannot be changed: the execution has no array for it"):
            execution.write({"left": A})
    with prepared.reusable([A, left]) as execution:
        np.testing.assert_array_equal(execution.run()[0], A + 2)
        run = execution.run_fenced()
        np.testing.assert_array_equal(run.result(60)[0], A + 2)
        left.write(A)
        np.testing.assert_array_equal(execution.run_fenced().result(60)[0], 2 * A)
        with pytest.raises(HalError, match="a later run of this execution has overwritten"):
            run.result()


async def test_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        first, second = await device.prepare(add(X)), await device.prepare(relu(X))
        between = await device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
        last = await device.allocate(outputs=[(second, 0)])
        start_fence = await device.fence()
        sum_fence = await first.execute_fenced([A, A - 3], outputs={"sum": between}, wait_for=[start_fence])
        chained_fence = await second.execute_fenced([sum_fence.outputs[0]], outputs=[last])
        await start_fence.signal()
        assert (await chained_fence.result(60))[0] is last
        assert (await sum_fence.result(60))["sum"] is between
        np.testing.assert_array_equal(await last.read(), np.maximum(2 * A - 3, 0))
        async with await second.reusable([between], outputs=[last]) as execution:
            await between.write(A - 1)
            assert (await execution.run())[0] is last
            np.testing.assert_array_equal(await last.read(), np.maximum(A - 1, 0))
            assert (await (await execution.run_fenced()).result(60))[0] is last


# ---- Bursts ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["auto", "grpc"])
def connected(request: pytest.FixtureRequest, service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as device:
        yield device


def test_chain_of_bursts(connected: nnhal.Device) -> None:
    first, second = connected.prepare(add(X)).result(60), connected.prepare(relu(X)).result(60)
    between = connected.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
    last = connected.allocate(outputs=[(second, 0)])
    with first.burst() as summing, second.burst() as rectifying:
        for shift in range(20):
            outputs = summing.execute({"left": A, "right": A - shift}, outputs={"sum": between}, measure_timing=True)
            assert outputs["sum"] is between
            assert outputs.timing.time_on_device_ns >= 0
            assert rectifying.execute([between], outputs=[last])[0] is last
            np.testing.assert_array_equal(last.read(), np.maximum(2 * A - shift, 0))
            np.testing.assert_array_equal(rectifying.execute([between])[0], np.maximum(2 * A - shift, 0))
            np.testing.assert_array_equal(rectifying.execute([A - shift])[0], np.maximum(A - shift, 0))


def test_submitted_executions_run_in_order(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(X)).result(60)
    sums = connected.allocate(inputs=[(prepared, "left")], outputs=[(prepared, 0)])
    other = connected.allocate(inputs=[(prepared, "left")], outputs=[(prepared, 0)])
    sums.write(np.zeros((2, 3), np.float32))
    with prepared.burst() as burst:
        futures = []
        for _ in range(10):
            futures += [burst.submit([sums, A], outputs=[other]), burst.submit([other, A], outputs=[sums])]
        plain = burst.submit([sums, A])
        assert [future.result(60)[0] for future in futures] == [other, sums] * 10
        np.testing.assert_array_equal(plain.result(60)[0], 21 * A)
    np.testing.assert_array_equal(sums.read(), 20 * A)


def test_bytes_of_a_kept_input_travel_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tensor(T.TENSOR_FLOAT32, (10_000,))
    with nnhal.connect(service.target, transport="grpc") as device:
        prepared = device.prepare(add(large)).result(60)
        left = device.allocate(inputs=[(prepared, "left")])
        left.write(np.ones(10_000, np.float32))
        with prepared.burst() as burst:
            transport, sizes = burst._burst.results.transport, list[int]()
            assert isinstance(transport, GrpcBurstTransport)
            send = transport._stream.send

            def send_and_measure(message: bytes) -> None:
                sizes.append(len(message))
                send(message)

            monkeypatch.setattr(transport._stream, "send", send_and_measure)
            right = burst.keep(np.ones(10_000, np.float32))
            for _ in range(3):
                np.testing.assert_array_equal(burst.execute([left, right])[0], np.full(10_000, 2))
        assert sizes[0] > 40_000
        assert max(sizes[1:]) < 1_000


def test_kept_inputs_beside_buffers(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(X)).result(60)
    left = connected.allocate(inputs=[(prepared, "left")])
    left.write(A)
    with prepared.burst() as burst:
        right = burst.keep(10 * A)
        for _ in range(3):
            np.testing.assert_array_equal(burst.execute([left, right])[0], 11 * A)
            np.testing.assert_array_equal(burst.execute([A, right])[0], 11 * A)
        burst.release(right)
        np.testing.assert_array_equal(burst.execute([left, A])[0], 2 * A)


def test_one_of_two_burst_outputs_in_a_buffer(connected: nnhal.Device) -> None:
    prepared = connected.prepare(split(X)).result(60)
    bottom = connected.allocate(outputs=[(prepared, "bottom")])
    with prepared.burst() as burst:
        for shift in range(3):
            outputs = burst.execute([A + shift], outputs={"bottom": bottom})
            assert outputs["bottom"] is bottom
            np.testing.assert_array_equal(np.asarray(outputs["top"]), A[:1] + shift)
            np.testing.assert_array_equal(bottom.read(), A[1:] + shift)
            np.testing.assert_array_equal(burst.execute([A])["bottom"], A[1:])


def test_shapes_may_grow_in_a_burst(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(OPEN)).result(60)
    source = connected.allocate(inputs=[(prepared, "left")])
    target = connected.allocate(outputs=[(prepared, 0)])
    with prepared.burst() as burst:
        for rows in (1, 4, 300_000, 2):
            data = np.full((rows, 3), rows, np.float32)
            source.write(data)
            np.testing.assert_array_equal(burst.execute([source, data])[0], 2 * data)
            burst.execute([source, data], outputs=[target])
            assert target.shape == (rows, 3)
            np.testing.assert_array_equal(target.read(), 2 * data)
        assert error_status(lambda: burst.execute([A, np.ones((5, 3), np.float32)], outputs=[target]))
        assert target.shape is None
        assert error_status(target.read) == ErrorStatus.GENERAL_FAILURE


def test_burst_continues_after_rejected_executions(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(X)).result(60)
    uninitialized, closed = (connected.allocate(inputs=[(prepared, "left")]) for _ in range(2))
    target = connected.allocate(outputs=[(prepared, 0)])
    closed.write(A)
    with prepared.burst() as burst:
        burst.execute([A, A], outputs=[target])
        assert error_status(lambda: burst.execute([uninitialized, A], outputs=[target])) == ErrorStatus.GENERAL_FAILURE
        assert error_status(target.read) == ErrorStatus.GENERAL_FAILURE
        closed.close()
        for _ in range(3):
            with pytest.raises(HalError, match="V-REQ-02"):
                burst.execute([closed, A])
            assert error_status(lambda: burst.execute([A, A], outputs=[uninitialized])) == ErrorStatus.INVALID_ARGUMENT
            assert (
                error_status(lambda: burst.execute([A, A], outputs={"product": target})) == ErrorStatus.INVALID_ARGUMENT
            )
            rejected, filling = burst.submit([closed, A]), burst.submit([A, A], outputs=[target])
            assert error_status(rejected.result) == ErrorStatus.INVALID_ARGUMENT
            assert filling.result(60)[0] is target
        np.testing.assert_array_equal(target.read(), 2 * A)
        dynamic = connected.prepare(relu(OPEN)).result(60)
        unknown = connected.allocate(inputs=[(dynamic, 0)])
        with dynamic.burst() as other, pytest.raises(HalError, match="uninitialized"):
            other.execute([unknown])


@pytest.mark.parametrize("transport", ["auto", "grpc"])
async def test_asyncio_bursts(service: Service, transport: Transport) -> None:
    async with nnhal.aio.connect(service.target, transport=transport) as device:
        first, second = await device.prepare(add(X)), await device.prepare(relu(X))
        between = await device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
        last = await device.allocate(outputs=[(second, 0)])
        dynamic = await device.prepare(add(OPEN))
        total = await device.allocate(outputs=[(dynamic, 0)])
        async with dynamic.burst() as adding:
            await adding.execute([A, A], outputs=[total])
            assert total.shape == (2, 3)
            with pytest.raises(HalError):
                await adding.execute([A, np.ones((5, 3), np.float32)], outputs=[total])
            assert total.shape is None
        async with first.burst() as summing, second.burst() as rectifying:
            for shift in range(5):
                filling, plain = summing.submit([A, A - shift], outputs=[between]), summing.submit([A, A])
                assert (await filling)[0] is between
                assert (await rectifying.execute([between], outputs=[last]))[0] is last
                np.testing.assert_array_equal(await last.read(), np.maximum(2 * A - shift, 0))
                np.testing.assert_array_equal((await plain)[0], 2 * A)
            await between.close()
            with pytest.raises(HalError, match="V-REQ-02"):
                await rectifying.execute([between], outputs=[last])
            np.testing.assert_array_equal((await rectifying.execute([A - 1]))[0], np.maximum(A - 1, 0))
