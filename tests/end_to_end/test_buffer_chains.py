"""Chains over driver-managed buffers behind fences, in reusable executions and in bursts: nothing comes to the client
in between, whichever way it talks to the service.
"""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.enums import FenceState
from nnhal.errors import HalError
from nnhal.lines import StreamLine
from nnhal.local import Transport
from nnhal.types import ErrorStatus
from nnhal.types import OperandType as T
from tests.driver.one_operation import tensor
from tests.end_to_end.conftest import Service
from tests.end_to_end.test_buffers import OPEN, A, X, add, relu, split, status


@pytest.fixture(scope="module")
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as made:
        yield made


# ---- Behind fences --------------------------------------------------------------------------------------


def test_a_fenced_chain_over_buffers(device: nnhal.Device) -> None:
    first, second = device.prepare(add(X)).result(10), device.prepare(relu(X)).result(10)
    between = device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
    last = device.allocate(outputs=[(second, 0)])
    for shift in (3, 4):
        go = device.fence()
        summed = first.execute_fenced([A, A - shift], outputs={"sum": between}, wait_for=[go], measure_timing=True)
        chained = second.execute_fenced([summed.outputs[0]], outputs=[last])
        waiting = second.execute_fenced([between], wait_for=[summed])
        assert chained.wait(0.02) == FenceState.ACTIVE, "it waits for the execution whose output it reads"
        go.signal()
        assert chained.result(10)[0] is last
        outputs = summed.result(10)
        assert outputs["sum"] is between
        assert outputs.timing.time_on_device_ns >= 0
        np.testing.assert_array_equal(last.read(), np.maximum(2 * A - shift, 0))
        np.testing.assert_array_equal(waiting.result(10)[0], np.maximum(2 * A - shift, 0))


def test_nothing_lies_elsewhere_when_all_outputs_go_to_buffers(
    device: nnhal.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = device.prepare(relu(X)).result(10)
    buffer = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
    connection = device._connection
    for name in ("create_memory", "read_memory"):
        monkeypatch.setattr(connection, name, lambda *_: pytest.fail("no memory is needed"))
    prepared.execute_fenced([A - 2], outputs=[buffer]).result(10)
    np.testing.assert_array_equal(buffer.read(), np.maximum(A - 2, 0))


def test_one_fenced_output_in_a_buffer_and_one_not(device: nnhal.Device) -> None:
    prepared = device.prepare(split(X)).result(10)
    top, bottom = (device.allocate(outputs=[(prepared, name)]) for name in ("top", "bottom"))
    fence = prepared.execute_fenced([A], outputs=[top, None])
    outputs = fence.result(10)
    assert outputs["top"] is top
    np.testing.assert_array_equal(np.asarray(outputs["bottom"]), A[1:])
    np.testing.assert_array_equal(top.read(), A[:1])
    outputs = prepared.execute_fenced([A + 1], outputs={"bottom": bottom}).result(10)
    np.testing.assert_array_equal(np.asarray(outputs["top"]), A[:1] + 1)
    np.testing.assert_array_equal(bottom.read(), A[1:] + 1)
    assert status(lambda: prepared.execute_fenced([A], outputs=[top])) == ErrorStatus.INVALID_ARGUMENT
    assert status(lambda: prepared.execute_fenced([A], outputs={"middle": top})) == ErrorStatus.INVALID_ARGUMENT


def test_a_buffer_may_fix_the_shape_of_a_fenced_output(device: nnhal.Device) -> None:
    prepared = device.prepare(relu(OPEN)).result(10)
    fixed = device.allocate(outputs=[(prepared, 0)], dimensions=(2, 3))
    loose = device.allocate(outputs=[(prepared, 0)])
    with pytest.raises(HalError, match="outputs of fixed shape"):
        prepared.execute_fenced([A], outputs=[loose])
    (taken,) = prepared.execute_fenced([A - 1], outputs=[fixed]).result(10)
    assert taken is fixed
    np.testing.assert_array_equal(fixed.read(), np.maximum(A - 1, 0))


def test_a_fenced_execution_that_fails_empties_its_buffer(device: nnhal.Device) -> None:
    prepared = device.prepare(relu(X)).result(10)
    buffer = device.allocate(outputs=[(prepared, 0)])
    prepared.execute([A], outputs=[buffer])
    go = device.fence()
    failed = prepared.execute_fenced([A], outputs=[buffer], wait_for=[go])
    go.signal(error=True)
    assert status(failed.result) == ErrorStatus.GENERAL_FAILURE
    assert status(buffer.read) == ErrorStatus.GENERAL_FAILURE


# ---- Again and again ------------------------------------------------------------------------------------


def test_a_reusable_execution_over_buffers(device: nnhal.Device) -> None:
    prepared = device.prepare(add(X)).result(10)
    left = device.allocate(inputs=[(prepared, "left"), (prepared, "right")])
    total = device.allocate(outputs=[(prepared, 0)])
    with prepared.reusable({"left": left, "right": A}, outputs=[total], measure_timing=True) as execution:
        assert status(execution.run) == ErrorStatus.GENERAL_FAILURE, "an input is uninitialised"
        for value in (1, 2):
            left.write(np.full((2, 3), value, np.float32))
            outputs = execution.run()
            assert outputs["sum"] is total
            assert outputs.timing.time_on_device_ns >= 0
            np.testing.assert_array_equal(total.read(), A + value)
            execution.write({"right": A * value})
            assert execution.run_fenced().result(10)[0] is total
            np.testing.assert_array_equal(total.read(), A * value + value)
            execution.write({"right": A})
        with pytest.raises(HalError, match="left was frozen with nothing to be changed here"):
            execution.write({"left": A})
    with prepared.reusable([A, left]) as execution:
        np.testing.assert_array_equal(execution.run()[0], A + 2)
        run = execution.run_fenced()
        np.testing.assert_array_equal(run.result(10)[0], A + 2)
        left.write(A)
        np.testing.assert_array_equal(execution.run_fenced().result(10)[0], 2 * A)
        with pytest.raises(HalError, match="a later run of this execution has written over"):
            run.result()


async def test_asyncio(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        first, second = await device.prepare(add(X)), await device.prepare(relu(X))
        between = await device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
        last = await device.allocate(outputs=[(second, 0)])
        go = await device.fence()
        summed = await first.execute_fenced([A, A - 3], outputs={"sum": between}, wait_for=[go])
        chained = await second.execute_fenced([summed.outputs[0]], outputs=[last])
        await go.signal()
        assert (await chained.result(10))[0] is last
        assert (await summed.result(10))["sum"] is between
        np.testing.assert_array_equal(await last.read(), np.maximum(2 * A - 3, 0))
        async with await second.reusable([between], outputs=[last]) as execution:
            await between.write(A - 1)
            assert (await execution.run())[0] is last
            np.testing.assert_array_equal(await last.read(), np.maximum(A - 1, 0))
            assert (await (await execution.run_fenced()).result(10))[0] is last


# ---- In bursts ------------------------------------------------------------------------------------------


@pytest.fixture(params=["auto", "grpc"])
def connected(request: pytest.FixtureRequest, service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as made:
        yield made


def test_a_chain_of_bursts_over_buffers(connected: nnhal.Device) -> None:
    first, second = connected.prepare(add(X)).result(10), connected.prepare(relu(X)).result(10)
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


def test_executions_of_a_burst_that_are_on_their_way_together(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(X)).result(10)
    sums = connected.allocate(inputs=[(prepared, "left")], outputs=[(prepared, 0)])
    other = connected.allocate(inputs=[(prepared, "left")], outputs=[(prepared, 0)])
    sums.write(np.zeros((2, 3), np.float32))
    with prepared.burst() as burst:
        futures = []
        for _ in range(10):
            futures += [burst.submit([sums, A], outputs=[other]), burst.submit([other, A], outputs=[sums])]
        plain = burst.submit([sums, A])
        assert [future.result(10)[0] for future in futures] == [other, sums] * 10
        np.testing.assert_array_equal(plain.result(10)[0], 21 * A)
    np.testing.assert_array_equal(sums.read(), 20 * A)


def test_the_bytes_of_a_kept_input_travel_once(service: Service) -> None:
    large = tensor(T.TENSOR_FLOAT32, (10_000,))
    with nnhal.connect(service.target, transport="grpc") as device:
        prepared = device.prepare(add(large)).result(10)
        left = device.allocate(inputs=[(prepared, "left")])
        left.write(np.ones(10_000, np.float32))
        with prepared.burst() as burst:
            line, sizes = burst._line, list[int]()
            assert isinstance(line, StreamLine)
            put = line._outbox.put

            def measured(sent: bytes | None) -> None:
                sizes.append(len(sent or b""))
                put(sent)

            line._outbox = SimpleNamespace(put=measured)  # type: ignore[assignment]
            right = burst.keep(np.ones(10_000, np.float32))
            for _ in range(3):
                np.testing.assert_array_equal(burst.execute([left, right])[0], np.full(10_000, 2))
            line._outbox = SimpleNamespace(put=put)  # type: ignore[assignment]
        assert sizes[0] > 40_000
        assert max(sizes[1:]) < 1_000


def test_kept_inputs_beside_buffers(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(X)).result(10)
    left = connected.allocate(inputs=[(prepared, "left")])
    left.write(A)
    with prepared.burst() as burst:
        right = burst.keep(10 * A)
        for _ in range(3):
            np.testing.assert_array_equal(burst.execute([left, right])[0], 11 * A)
            np.testing.assert_array_equal(burst.execute([A, right])[0], 11 * A)
        burst.release(right)
        np.testing.assert_array_equal(burst.execute([left, A])[0], 2 * A)


def test_one_output_of_a_burst_in_a_buffer_and_one_not(connected: nnhal.Device) -> None:
    prepared = connected.prepare(split(X)).result(10)
    bottom = connected.allocate(outputs=[(prepared, "bottom")])
    with prepared.burst() as burst:
        for shift in range(3):
            outputs = burst.execute([A + shift], outputs={"bottom": bottom})
            assert outputs["bottom"] is bottom
            np.testing.assert_array_equal(np.asarray(outputs["top"]), A[:1] + shift)
            np.testing.assert_array_equal(bottom.read(), A[1:] + shift)
            np.testing.assert_array_equal(burst.execute([A])["bottom"], A[1:])


def test_shapes_and_values_that_grow_in_a_burst(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(OPEN)).result(10)
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
        assert status(lambda: burst.execute([A, np.ones((5, 3), np.float32)], outputs=[target]))
        assert target.shape is None
        assert status(target.read) == ErrorStatus.GENERAL_FAILURE


def test_a_burst_outlives_what_is_refused(connected: nnhal.Device) -> None:
    prepared = connected.prepare(add(X)).result(10)
    empty, closed = (connected.allocate(inputs=[(prepared, "left")]) for _ in range(2))
    target = connected.allocate(outputs=[(prepared, 0)])
    closed.write(A)
    with prepared.burst() as burst:
        burst.execute([A, A], outputs=[target])
        assert status(lambda: burst.execute([empty, A], outputs=[target])) == ErrorStatus.GENERAL_FAILURE
        assert status(target.read) == ErrorStatus.GENERAL_FAILURE
        closed.close()
        for _ in range(3):
            with pytest.raises(HalError, match="V-REQ-02"):
                burst.execute([closed, A])
            assert status(lambda: burst.execute([A, A], outputs=[empty])) == ErrorStatus.INVALID_ARGUMENT
            assert status(lambda: burst.execute([A, A], outputs={"product": target})) == ErrorStatus.INVALID_ARGUMENT
            refused, filling = burst.submit([closed, A]), burst.submit([A, A], outputs=[target])
            assert status(refused.result) == ErrorStatus.INVALID_ARGUMENT
            assert filling.result(10)[0] is target
        np.testing.assert_array_equal(target.read(), 2 * A)
        loose = connected.prepare(relu(OPEN)).result(10)
        unknown = connected.allocate(inputs=[(loose, 0)])
        with loose.burst() as other, pytest.raises(HalError, match="uninitialised"):
            other.execute([unknown])


@pytest.mark.parametrize("transport", ["auto", "grpc"])
async def test_asyncio_bursts(service: Service, transport: Transport) -> None:
    async with nnhal.aio.connect(service.target, transport=transport) as device:
        first, second = await device.prepare(add(X)), await device.prepare(relu(X))
        between = await device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
        last = await device.allocate(outputs=[(second, 0)])
        loose = await device.prepare(add(OPEN))
        total = await device.allocate(outputs=[(loose, 0)])
        async with loose.burst() as adding:
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
