"""Regions of the LiteRT extension: the same results on a service of several clients, on an embedded one, and in LiteRT.

On the first, they run in processes of their own. What happens to these, other clients do not notice.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import AnyArray, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op_
from nnhal_service.quarantine import QuarantineFile
from tests.concurrency import wait_until
from tests.driver.backends.litert.submodel.control_flow import branch, counted_loop, join, unary
from tests.driver.backends.litert.submodel.detection import detection
from tests.driver.backends.litert.support.regions import region
from tests.end_to_end.support.process_usage import ProcessUsage
from tests.end_to_end.support.service_process import Service, has_ended, start_service, stop_service
from tests.nnhal.tflite.build import Op, Tensor, build, options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
RNG = np.random.default_rng(5)


def where() -> bytes:
    return build(Op("WHERE", [Tensor((4, 3), "BOOL")], [Tensor((1, 2), "INT64")]))


def unique() -> bytes:
    outputs = [Tensor((1,), "INT32"), Tensor((9,), "INT32")]
    return build(Op("UNIQUE", [Tensor((9,), "INT32")], outputs, options("Unique", idxOutType=2)), outputs=outputs)


def variables() -> bytes:
    """Return the sum of a variable, which is assigned first, and the input."""
    x, value, total = Tensor((2, 3)), Tensor((2, 3)), Tensor((2, 3))
    handle = Tensor((), "RESOURCE")
    table = options("VarHandle", container="", sharedName="v")
    return build(
        Op("VAR_HANDLE", [], [handle], table),
        Op("ASSIGN_VARIABLE", [handle, x], [], options("AssignVariable")),
        Op("READ_VARIABLE", [handle], [value], options("ReadVariable")),
        Op("ADD", [value, x], [total], options("Add")),
        inputs=[x],
    )


def static() -> bytes:
    x, y = Tensor((2, 3), "INT64"), Tensor((2, 3), "INT64")
    return build(Op("MUL", [x, y], [Tensor((2, 3), "INT64")], options("Mul")))


def scalars() -> bytes:
    """Return a sequence whose length depends on the scalar inputs."""
    ends, step = [Tensor((), "INT32"), Tensor((), "INT32")], Tensor((), "INT32", 1)
    return build(Op("RANGE", [*ends, step], [Tensor((1,), "INT32")], options("Range")))


MODELS: dict[str, tuple[Callable[[], bytes], Sequence[Callable[[], AnyArray]]]] = {
    "WHERE": (where, [lambda: RNG.random((4, 3)) < 0.5]),
    "WHERE of nothing": (where, [lambda: np.zeros((4, 3), bool)]),
    "UNIQUE": (unique, [lambda: RNG.integers(0, 5, 9, np.int32)]),
    "custom operator": (
        detection,
        [*[lambda: RNG.random((1, 20, 4), np.float32)] * 2, lambda: RNG.random((20, 4), np.float32)],
    ),
    "WHILE": (counted_loop, [lambda: RNG.random((2, 3), np.float32)]),
    "IF": (
        lambda: branch(unary("NEG", Tensor((2, 3)), options("Neg")), unary("FLOOR", Tensor((2, 3)))),
        [lambda: np.array([True]), lambda: RNG.random((2, 3), np.float32)],
    ),
    "variables": (variables, [lambda: RNG.random((2, 3), np.float32)]),
    "RANGE of scalars": (scalars, [lambda: np.array([3], np.int32), lambda: RNG.integers(4, 9, 1, np.int32)]),
    "static": (static, [lambda: RNG.integers(-(2**40), 2**40, (2, 3))] * 2),
}


def run_litert(data: bytes, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """Return the outputs of LiteRT alone, with one dimension for scalars as operands have."""
    engine = interpreter.Interpreter(model_content=data, num_threads=1)
    engine.allocate_tensors()
    for detail, value in zip(engine.get_input_details(), inputs, strict=True):
        engine.set_tensor(detail["index"], value.reshape(detail["shape"]))
    engine.invoke()
    outputs = []
    for detail in engine.get_output_details():
        empty = np.empty(detail["shape"], detail["dtype"])
        outputs.append(engine.get_tensor(detail["index"]).reshape(empty.shape or (1,)) if empty.size else empty)
    return outputs


def has_static_outputs(name: str) -> bool:
    return name in ("custom operator", "WHILE", "IF", "variables", "static")


def model_of(name: str) -> Model:
    return region(MODELS[name][0](), is_dynamic=not has_static_outputs(name))


@pytest.fixture(scope="module")
def embedded() -> Iterator[nnhal.Device]:
    """Yield a device of an embedded service."""
    with nnhal.connect() as device:
        yield device


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """Yield a service of this test alone, whose log has no dead worker."""
    service = start_service(tmp_path, "--state-dir", str(tmp_path / "state"))
    worker = service.pid
    yield service
    assert service.pid == worker and not service.logged("worker-died")
    assert wait_until(lambda: not engine_pids(service))
    assert stop_service(service) == 0


def engine_pids(service: Service) -> list[int]:
    """Return the processes of engines of a service, whose supervisor has adopted them."""
    supervisor, found = service.process.pid, []
    for pid in map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_text() == "nnhal-engine\n" and not has_ended(pid):
                found.append(pid)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_litert(service: Service, embedded: nnhal.Device, name: str) -> None:
    build_model, inputs = MODELS[name]
    with nnhal.connect(service.target) as shared:
        prepared = [device.prepare(model_of(name)).result(60) for device in (shared, embedded)]
        for _ in range(3):
            values = [create() for create in inputs]
            expected = run_litert(build_model(), values)
            for each in prepared:
                for actual, wanted in zip(each.execute(values), expected, strict=True):
                    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
                    assert actual.tobytes() == wanted.tobytes()


def reads_absent_scale() -> bytes:
    """Return a model on which LiteRT crashes when it runs it."""
    return build(Op("EQUAL", [Tensor((9,), "INT8"), Tensor((9,), "INT8")], [Tensor((9,), "BOOL")]))


def test_crash_ends_one_execution(own_service: Service, tmp_path: Path) -> None:
    values = [RNG.integers(-5, 5, 9, np.int8) for _ in range(2)]
    data, (create,) = where(), MODELS["WHERE"][1]
    with nnhal.connect(own_service.target) as device:
        victim = device.prepare(model_of("WHERE")).result(60)
        mask = create()
        with pytest.raises(nnhal.HalError, match=r"the process of the engine ended: (Segmentation fault|Aborted)"):
            device.prepare(region(reads_absent_scale())).result(60).execute(values)
        assert victim.execute([mask])[0].tobytes() == run_litert(data, [mask])[0].tobytes()
    ((crash, *_),) = QuarantineFile(tmp_path / "state").crashes().values()
    assert crash.backend == "CpuAcc" and crash.how.startswith("in an engine: ")


def test_index_out_of_range_is_the_error_of_litert(service: Service, embedded: nnhal.Device) -> None:
    table, indices = Tensor((4, 3), "INT64"), Tensor((1,), "INT32")
    data = build(Op("GATHER", [table, indices], [Tensor((1, 3), "INT64")], options("Gather")))
    with nnhal.connect(service.target) as shared:
        for device in (shared, embedded):
            prepared = device.prepare(region(data)).result(60)
            for index in (2, 2**31 - 1, 1, -5):
                rows = np.arange(12).reshape(4, 3)
                values: list[AnyArray] = [rows, np.array([index], np.int32)]
                if 0 <= index < 4:
                    np.testing.assert_array_equal(prepared.execute(values)[0], rows[index : index + 1])
                else:
                    with pytest.raises(nnhal.HalError, match="LiteRT failed in main: "):
                        prepared.execute(values)


def endless() -> bytes:
    """Return a WHILE that does not end."""
    counter, result = Tensor((), "INT32"), Tensor((), "INT32")
    condition = build(Op("EQUAL", [counter, counter], [Tensor((), "BOOL")], options("Equal")), inputs=[counter])
    step = build(
        Op("MINIMUM", [counter, Tensor((), "INT32", 7)], [result], options("MaximumMinimum")), inputs=[counter]
    )
    table = options("While", condSubgraphIndex=1, bodySubgraphIndex=2)
    return join(build(Op("WHILE", [counter], [Tensor((), "INT32")], table)), condition, step)


def test_deadline_ends_an_endless_region(own_service: Service) -> None:
    with nnhal.connect(own_service.target) as device:
        prepared = device.prepare(region(endless())).result(60)
        for _ in range(3):
            with pytest.raises(nnhal.HalError, match="MISSED_DEADLINE"):
                prepared.execute([np.array([1], np.int32)], deadline=0.05)
        assert wait_until(lambda: not engine_pids(own_service))


def convolution() -> tuple[Model, AnyArray]:
    """Return a convolution of 2^35 multiply-adds, and its input."""
    b = nnhal.ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, (1, 128, 128, 512))
    weights = np.zeros((512, 3, 3, 512), np.float32)
    b.output(b.add(Op_.CONV_2D, x, weights, np.zeros(512, np.float32), 1, 1, 1, 0, output=x.description))
    return b.build(), np.ones((1, 128, 128, 512), np.float32)


def product() -> tuple[Model, AnyArray]:
    """Return a matrix product of 2^35 multiply-adds, and its input."""
    b = nnhal.ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, (4096, 2048))
    weights = np.zeros((4096, 2048), np.float32)
    b.output(
        b.add(
            Op_.FULLY_CONNECTED,
            x,
            weights,
            np.zeros(4096, np.float32),
            0,
            output=Operand(T.TENSOR_FLOAT32, (4096, 4096)),
        )
    )
    return b.build(), np.ones((4096, 2048), np.float32)


@pytest.mark.parametrize("create", [convolution, product])
def test_deadline_ends_one_long_operation(own_service: Service, create: Callable[[], tuple[Model, AnyArray]]) -> None:
    model, value = create()
    with nnhal.connect(own_service.target) as device:
        prepared = device.prepare(model).result(60)
        assert {partition.backend for partition in prepared.placement.partitions} == {"CpuAcc"}
        assert len(engine_pids(own_service)) == 1
        with pytest.raises(nnhal.HalError, match="MISSED_DEADLINE"):
            prepared.execute([value], deadline=0.05)
        assert wait_until(lambda: not engine_pids(own_service))
        assert not prepared.execute([value])[0].any()


@pytest.mark.slow
def test_killed_engines_disturb_nobody(own_service: Service) -> None:
    """Engines are killed at random while two clients work: each result is right, or the execution fails clearly."""
    data, (create,) = where(), MODELS["WHERE"][1]
    masks = [create() for _ in range(4)]
    expected = [run_litert(data, [mask])[0] for mask in masks]
    relu = nnhal.ModelBuilder()
    x = relu.input(T.TENSOR_FLOAT32, (3,))
    relu.output(relu.add(Op_.RELU, x, output=x.description))
    done, ready = [False], threading.Barrier(3)

    def attacked(number: int) -> tuple[int, int]:
        """Return the numbers of results and of failed executions."""
        results = failures = 0
        with nnhal.connect(own_service.target) as device, device.prepare(model_of("WHERE")).result(60) as prepared:
            ready.wait(60)
            while not done[0] or not results:  # at the end, nothing kills its engine
                try:
                    actual = prepared.execute([masks[results % 4]])[0]
                except nnhal.HalError as error:
                    assert "the process of the engine ended" in error.reason, error
                    failures += 1
                else:
                    np.testing.assert_array_equal(actual, expected[results % 4])
                    results += 1
        return results, failures

    def victim() -> int:
        """Return the number of results of a client without regions, of which none fails."""
        results = 0
        with nnhal.connect(own_service.target) as device, device.prepare(relu.build()).result(60) as prepared:
            while not done[0]:
                np.testing.assert_array_equal(prepared.execute([[-1, 0, results]])[0], [0, 0, results])
                results += 1
        return results

    generator = random.Random(1)
    with ThreadPoolExecutor(3) as pool:
        attackers, other = [pool.submit(attacked, number) for number in range(2)], pool.submit(victim)
        ready.wait(60)
        try:
            killed: set[int] = set()
            while len(killed) < 100:
                assert wait_until(lambda: set(engine_pids(own_service)) - killed)
                pid = generator.choice(sorted(set(engine_pids(own_service)) - killed) or [0])
                if pid:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
        finally:
            done[0] = True
        counts = [future.result(60) for future in attackers]
        assert sum(failures for _, failures in counts) > 50 and all(results for results, _ in counts)
        assert other.result(60)
    assert wait_until(lambda: not engine_pids(own_service))
    assert not own_service.logged("engine-crashed")


def test_engines_leave_nothing_behind(own_service: Service) -> None:
    def use() -> None:
        with nnhal.connect(own_service.target) as device:
            for name in ("WHERE", "UNIQUE", "WHILE"):
                with device.prepare(model_of(name)).result(60) as prepared:
                    prepared.execute([create() for create in MODELS[name][1]])
        assert wait_until(lambda: not engine_pids(own_service))

    use()
    before = ProcessUsage.read(own_service.pid)
    for _ in range(5):
        use()
    assert wait_until(lambda: ProcessUsage.read(own_service.pid).descriptors <= before.descriptors)


def test_worker_of_one_client_runs_its_regions(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--worker-per-identity")
    data, (create,) = where(), MODELS["WHERE"][1]
    with nnhal.connect(service.target) as device, device.prepare(model_of("WHERE")).result(60) as prepared:
        mask = create()
        assert prepared.execute([mask])[0].tobytes() == run_litert(data, [mask])[0].tobytes()
        assert not engine_pids(service)
    assert stop_service(service) == 0
