"""Models of which the client's machine runs what the device does not support, with both clients."""

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
import nnhal.aio
import nnhal.client.aio.reconnect
import nnhal.client.sync.reconnect
from nnhal import ModelBuilder, PartitionedModel
from nnhal.client.core.cache import SharedDeadline
from nnhal.client.fallback.placement import FallbackPlacement, OperationSide, PlacedPart
from nnhal.client.fallback.preparation import PreparationArguments
from nnhal.client.sync.grpc_calls import PreparationCall
from nnhal.embedded import EmbeddedService
from nnhal.types import CacheState, ErrorStatus, Model, ModelState, Operand, SpanKind
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import tensor
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.nnhal.tflite import build
from tests.nnhal.tflite.region import squaring_file

F32 = tensor(T.TENSOR_FLOAT32, (2, 3))
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
PLUGINS = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(Path(__file__).parent / "plugins")}
WHY_NOT = "Picky: it does not like this"


@pytest.fixture(scope="module")
def cpu_ref(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that does not have the LiteRT extension."""
    running = start_service(tmp_path_factory.mktemp("cpu-ref"), "--backends", "CpuRef")
    yield running
    assert stop_service(running) == 0


def start_picky(folder: Path, *options: str) -> Service:
    """Start a service that refuses NEG, FLOOR and L2_POOL_2D, and fails to compile EXP."""
    names = {"PICKY_REFUSED": "NEG FLOOR L2_POOL_2D", "PICKY_FAILING": "EXP"}
    return start_service(folder, "--backends", "Picky", *options, **PLUGINS, **names)


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that refuses some operations."""
    running = start_picky(tmp_path_factory.mktemp("picky"))
    yield running
    assert stop_service(running) == 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EmbeddedService]:
    """Return the list that the services which the clients start are added to."""
    services: list[EmbeddedService] = []

    class Recorded(EmbeddedService):
        def __init__(self) -> None:
            super().__init__()
            services.append(self)

    for module in (nnhal.client.sync.reconnect, nnhal.client.aio.reconnect):
        monkeypatch.setattr(module, "EmbeddedService", Recorded)
    return services


def chain(*types: Op) -> Model:
    """Return a model of operations of one input, one after the other."""
    builder = ModelBuilder()
    value = builder.input(T.TENSOR_FLOAT32, F32.dimensions, name="x")
    for type_ in types:
        value = builder.add(type_, value, output=F32)
    builder.output(value, name="y")
    return builder.build()


def prepare(device: nnhal.Device, model: Model, **options: Any) -> PartitionedModel:
    """Prepare a model that does not run on the device alone."""
    prepared = device.prepare(model, fallback=True, **options).result(60)
    assert isinstance(prepared, PartitionedModel)
    return prepared


# ---- Results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_region_of_the_extension(cpu_ref: Service, transport: Any) -> None:
    with (
        nnhal.connect(cpu_ref.target, transport=transport) as device,
        prepare(device, nnhal.tflite.parse(squaring_file())) as prepared,
    ):
        outputs = prepared.execute({"x": X}, deadline=60, measure_timing=True)
        np.testing.assert_array_equal(outputs["y"], -(X**2))
        assert outputs.timing.time_on_device_ns > 0
        np.testing.assert_array_equal(prepared.execute([X.tolist()])[0], -(X**2))
        np.testing.assert_array_equal(prepared(x=X)[0], -(X**2))
        assert prepared.input_names == ("x",)
        assert [info.name for info in (*prepared.inputs, *prepared.outputs)] == ["x", "y"]
        assert [part.is_fallback for part in prepared.placement.parts] == [False, True, False]


def test_region_of_a_device_without_the_extension(tmp_path: Path) -> None:
    """The client runs WHERE, whose number of elements depends on values."""
    x, is_set, found, y = (build.Tensor((2, 3), name="x"), build.Tensor((2, 3), "BOOL"), *(
        build.Tensor((1, 2), type_) for type_ in ("INT64", "FLOAT32")
    ))  # fmt: skip
    file = build.build(
        build.Op("GREATER", [x, build.Tensor((), data=0)], [is_set]),
        build.Op("WHERE", [is_set], [found]),
        build.Op("CAST", [found], [y]),
        inputs=[x],
    )
    service = start_service(tmp_path, "--no-extension", "litert")
    with nnhal.connect(service.target) as device, prepare(device, nnhal.tflite.parse(file)) as prepared:
        for values in (X, -X):
            np.testing.assert_array_equal(prepared.execute([values])[0], np.argwhere(values > 0))
        assert any(part.is_fallback for part in prepared.placement.parts)
    assert stop_service(service) == 0


def test_types_of_the_extension_pass_as_their_dtype(cpu_ref: Service) -> None:
    first, second, third, fourth = (build.Tensor((2,), type_, name=name) for type_, name in (
        ("INT64", "a"), ("INT64", "b"), ("FLOAT32", "c"), ("INT64", "d"),
    ))  # fmt: skip
    operators = (
        build.Op("MUL", [first, first], [second], build.options("Mul")),
        build.Op("CAST", [second], [third], build.options("Cast")),
        build.Op("ADD", [second, first], [fourth], build.options("Add")),
    )
    model = nnhal.tflite.parse(build.build(*operators, outputs=[third, fourth]))
    with nnhal.connect(cpu_ref.target) as device, prepare(device, model) as prepared:
        assert prepared.inputs[0].dtype == np.int64
        outputs = prepared.execute([np.array([3, -(2**20)])])
        assert outputs["d"].dtype == np.int64
        assert outputs["d"].tolist() == [12, 2**40 - 2**20]
        assert outputs["c"].tolist() == [9, 2**40]


def test_supported_model_is_an_ordinary_one(picky: Service, started: list[EmbeddedService]) -> None:
    with nnhal.connect(picky.target) as device:
        prepared = device.prepare(chain(Op.ABS, Op.SQRT), fallback=True).result(60)
        assert isinstance(prepared, nnhal.PreparedModel)
        assert not isinstance(prepared, PartitionedModel)
        placement = device.explain(chain(Op.ABS), fallback=True)
        assert not isinstance(placement, FallbackPlacement)
        assert started == []


def test_embedded_device_has_no_fallback(started: list[EmbeddedService]) -> None:
    """It is on this machine already."""
    builder = ModelBuilder()
    extension = builder.extension("org.example.missing")
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    builder.output(builder.add(extension.operation_type(3), x, output=F32))
    with nnhal.connect() as device:
        with pytest.raises(nnhal.HalError, match="GENERAL_FAILURE: operation 0 of main"):
            prepare(device, builder.build())
        assert not isinstance(device.explain(builder.build(), fallback=True), FallbackPlacement)
    assert len(started) == 1


def test_fallback_must_be_requested(picky: Service) -> None:
    with nnhal.connect(picky.target) as device, pytest.raises(nnhal.HalError, match=WHY_NOT):
        device.prepare(chain(Op.NEG)).result(60)


async def test_asyncio_client(picky: Service, started: list[EmbeddedService]) -> None:
    async with nnhal.aio.connect(picky.target) as device:
        model = chain(Op.ABS, Op.NEG)
        prepared = await device.prepare(model, fallback=True)
        assert isinstance(prepared, nnhal.aio.PartitionedModel)
        results = await asyncio.gather(*(prepared.execute([X + i]) for i in range(5)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], -np.abs(X + i))
        assert prepared.placement == await device.explain(model, fallback=True)
        await prepared.close()
        assert "closed" in repr(prepared)
        (service,) = started
    assert not is_running(service)


def test_many_threads(picky: Service) -> None:
    with nnhal.connect(picky.target) as device, prepare(device, chain(Op.ABS, Op.NEG, Op.SQRT)) as prepared:
        errors: list[Exception] = []

        def run(i: int) -> None:
            try:
                for _ in range(20):
                    np.testing.assert_array_equal(prepared.execute([X * 0 - i])[0], np.full((2, 3), np.nan))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(i + 1,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []


def test_profile_has_the_numbers_of_the_whole_model(picky: Service) -> None:
    with nnhal.connect(picky.target) as device, prepare(device, chain(Op.ABS, Op.NEG, Op.SQRT)) as prepared:
        profile = prepared.profile([X])
        partitions = [span for span in profile.spans if span.kind == SpanKind.PARTITION]
        assert [(span.backend, span.operations) for span in partitions] == [
            ("Picky", (0,)),
            ("CpuAcc (this machine)", (1,)),
            ("Picky", (2,)),
        ]
        assert all(a.start_ns + a.duration_ns <= b.start_ns for a, b in itertools.pairwise(partitions))


# ---- Placement ------------------------------------------------------------------------------------------


def test_placement_names_side_and_reason(picky: Service) -> None:
    model = chain(Op.ABS, Op.NEG, Op.FLOOR, Op.SQRT)
    with nnhal.connect(picky.target) as device, prepare(device, model) as prepared:
        placement = prepared.placement
        assert placement.parts == (PlacedPart((0,), False), PlacedPart((1, 2), True), PlacedPart((3,), False))
        assert placement.crossing_bytes == 48
        sides = [operation for operation in placement.operations if isinstance(operation, OperationSide)]
        assert [(each.operation, each.is_fallback) for each in sides] == [(0, 0), (1, 1), (2, 1), (3, 0)]
        assert sides[1].refusals[0].reason == "it does not like this"
        assert placement.summary == (
            f"2 of 4 operations run on this machine, because the device does not support them ({WHY_NOT}); "
            "48 bytes cross per execution, in 3 parts"
        )
        assert prepared.warnings[0].code == "fallback"
        assert prepared.warnings[0].text == placement.summary
        assert device.explain(model, fallback=True) == placement
        assert {operation.backend for operation in device.explain(model).operations} == {"Picky", ""}
        assert repr(prepared) == (
            "<nnhal.PartitionedModel 2 operations on the device and 2 on this machine, "
            "with inputs x: float32[2, 3]; outputs y: float32[2, 3]>"
        )


def test_part_that_the_device_fails_to_prepare_runs_here(picky: Service) -> None:
    with nnhal.connect(picky.target) as device:
        with prepare(device, chain(Op.ABS, Op.NEG, Op.EXP)) as prepared:
            assert prepared.placement.parts == (PlacedPart((0,), False), PlacedPart((1, 2), True))
            reasons = [refusal.reason for refusal in prepared.placement.operations[2].refusals]
            assert "it failed to prepare this: " in reasons[0]
            assert "is too hard" in reasons[0]
            np.testing.assert_allclose(prepared.execute([X])[0], np.exp(-np.abs(X)), rtol=1e-5)
        with prepare(device, chain(Op.ABS, Op.EXP)) as prepared:
            assert prepared.placement.parts == (PlacedPart((0, 1), True),)


# ---- Errors ---------------------------------------------------------------------------------------------


def test_methods_that_are_not_possible(picky: Service) -> None:
    with nnhal.connect(picky.target) as device, prepare(device, chain(Op.ABS, Op.NEG)) as prepared:
        calls: list[Callable[[], object]] = [prepared.burst, prepared.execute_fenced, prepared.reusable]
        for call in calls:
            with pytest.raises(nnhal.HalError, match=r"is not possible: 1 of 2 operations .* run on this machine"):
                call()
        whole = device.prepare(chain(Op.ABS)).result(60)
        buffer = device.allocate(inputs=[(whole, 0)])
        with buffer, pytest.raises(nnhal.HalError, match="an execution with buffers is not possible"):
            prepared.execute([buffer])  # type: ignore[list-item]
        with pytest.raises(nnhal.HalError, match="the model has no states"):
            prepared.stream()


async def test_methods_that_are_not_possible_for_asyncio(picky: Service) -> None:
    async with nnhal.aio.connect(picky.target) as device:
        prepared = await device.prepare(chain(Op.ABS, Op.NEG), fallback=True)
        assert isinstance(prepared, nnhal.aio.PartitionedModel)
        with pytest.raises(nnhal.HalError, match=r"burst\(\) is not possible"):
            prepared.burst()
        with pytest.raises(nnhal.HalError, match=r"execute_fenced\(\) is not possible"):
            await prepared.execute_fenced([X])
        with pytest.raises(nnhal.HalError, match=r"reusable\(\) is not possible"):
            await prepared.reusable([X])


def test_deadline_is_shared(picky: Service) -> None:
    with nnhal.connect(picky.target) as device:
        with pytest.raises(nnhal.HalError) as caught:
            prepare(device, chain(Op.ABS, Op.NEG), deadline=0)
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
        with prepare(device, chain(Op.ABS, Op.NEG), deadline=600) as prepared:
            with pytest.raises(nnhal.HalError, match=r"part 1 of 2 \(operation 0, on the device\)") as caught:
                prepared.execute([X], deadline=0)
            assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_invalid_model_and_input(picky: Service, started: list[EmbeddedService]) -> None:
    with nnhal.connect(picky.target) as device:
        model = chain(Op.NEG)
        broken = replace(model, main=replace(model.main, input_indexes=(7,)))
        with pytest.raises(nnhal.HalError, match="V-SUBGRAPH-04"):
            prepare(device, broken)
        assert started == []
        with prepare(device, model) as prepared:
            with pytest.raises(nnhal.HalError, match=r"input 0 \(x\) has shape \[1, 3\]; the model takes \[2, 3\]"):
                prepared.execute([X[:1]])
            with pytest.raises(nnhal.HalError, match="no input is named 'z'"):
                prepared.execute({"z": X})


def test_cancelled_preparation_does_not_go_on(picky: Service, started: list[EmbeddedService]) -> None:
    call = PreparationCall()
    call.cancel()
    arguments = PreparationArguments.of("fast_single_answer", "medium", False, None)
    with nnhal.connect(picky.target) as device, pytest.raises(nnhal.HalError, match="cancelled"):
        device._prepare_with_fallback(chain(Op.NEG), arguments, call, SharedDeadline(None))
    assert started == []


def test_operation_that_runs_nowhere(picky: Service) -> None:
    builder = ModelBuilder()
    extension = builder.extension("org.example.missing")
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    builder.output(builder.add(extension.operation_type(3), x, output=F32))
    expected = r"the device does not support operation 0 \(Picky: .*\); on this machine: operation 0 of main .*CpuAcc"
    with nnhal.connect(picky.target) as device, pytest.raises(nnhal.HalError, match=expected):
        prepare(device, builder.build())


@pytest.mark.usefixtures("unforked_embedded_services")
async def test_missing_extra_is_named(picky: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError('no pydantic', name='pydantic')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    expected = (
        r"the device does not support operation 0 \(Picky: it does not like this\); to run such operations on this "
        r"machine, install the extra nnhal\[server\] \(pip install 'nnhal\[server\]'\): the embedded service did not"
    )
    with nnhal.connect(picky.target) as device:
        for _ in range(2):
            with pytest.raises(nnhal.HalError, match=expected):
                prepare(device, chain(Op.NEG))
    async with nnhal.aio.connect(picky.target) as other:
        with pytest.raises(nnhal.HalError, match=expected):
            await other.prepare(chain(Op.NEG), fallback=True)


# ---- Empty values ---------------------------------------------------------------------------------------


def slicing() -> Model:
    """Return a model that takes some rows of an input; two poolings leave them as they are."""
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, (4, 1, 1, 3))
    size = builder.input(T.TENSOR_INT32, (4,))
    rows = tensor(T.TENSOR_FLOAT32, (0, 1, 1, 3))
    value = builder.add(Op.SLICE, x, np.zeros(4, np.int32), size, output=rows)
    for type_ in (Op.L2_POOL_2D, Op.AVERAGE_POOL_2D):
        value = builder.add(type_, value, *(0, 0, 0, 0, 1, 1, 1, 1, 0), output=rows)
    builder.output(value)
    return builder.build()


@pytest.mark.parametrize("count", [2, 0])
def test_empty_values_pass_only_inside_of_a_service(picky: Service, count: int) -> None:
    """No request can contain an empty tensor, so the whole model then runs on this machine."""
    x = np.arange(12, dtype=np.float32).reshape(4, 1, 1, 3)
    size = np.array([count, 1, 1, 3], np.int32)
    with nnhal.connect(picky.target) as device, prepare(device, slicing()) as prepared:
        assert [part.is_fallback for part in prepared.placement.parts] == [False, True, False]
        for outputs in (prepared.execute([x, size]), prepared.profile([x, size]).outputs):
            assert outputs[0].shape == (count, 1, 1, 3)
            np.testing.assert_allclose(outputs[0], x[:count])


# ---- States ---------------------------------------------------------------------------------------------


def running_sum() -> Model:
    """Return a model with the output -(sum of all inputs) and the state, which starts at 10."""
    builder = ModelBuilder()
    x, total = (builder.input(T.TENSOR_FLOAT32, (3,), name=name) for name in ("x", "total"))
    after = builder.add(Op.ADD, x, total, 0, output=Operand(T.TENSOR_FLOAT32, (3,)))
    builder.output(builder.add(Op.NEG, after, output=Operand(T.TENSOR_FLOAT32, (3,))), name="negative")
    builder.output(after, name="total")
    return replace(builder.build(), states=(ModelState("total", 1, 1, np.full(3, 10, np.float32)),))


ONE = np.ones(3, np.float32)


def test_stream(picky: Service) -> None:
    with nnhal.connect(picky.target) as device:
        prepared = prepare(device, running_sum())
        stream, other = prepared.stream(), prepared.stream()
        for count in range(1, 5):
            outputs = stream.step([ONE], measure_timing=True)
            assert outputs.names == ("negative",)
            assert outputs[0].tolist() == [-10 - count] * 3
            assert outputs.timing.time_on_device_ns > 0
        assert other.step({"x": ONE})["negative"].tolist() == [-11] * 3
        with pytest.raises(nnhal.HalError, match="2 inputs given; the model takes 1"):
            stream.step([ONE, ONE])
        assert stream.step([ONE])[0].tolist() == [-15] * 3
        stream.reset()
        assert stream.step([ONE])[0].tolist() == [-11] * 3


async def test_asyncio_stream(picky: Service) -> None:
    async with nnhal.aio.connect(picky.target) as device:
        prepared = await device.prepare(running_sum(), fallback=True)
        async with prepared.stream() as stream:
            results = await asyncio.gather(*(stream.step([ONE]) for _ in range(5)))
        assert sorted(float(result[0][0]) for result in results) == [-15, -14, -13, -12, -11]


# ---- Cache and restarts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, bytes(range(32))])
def test_cache_works_for_each_part(picky: Service, token: bytes | None) -> None:
    model = chain(Op.ABS, Op.NEG, Op.SQRT, *([Op.ABS] if token else []))
    options: dict[str, Any] = {"token": token} if token else {"cache": True}
    with nnhal.connect(picky.target) as device:
        for state in (CacheState.SAVED, CacheState.HIT):
            with prepare(device, model, **options) as prepared:
                assert prepared.cache.state == state
                np.testing.assert_array_equal(prepared.execute([X * 0])[0], X * 0)
        with prepare(device, model) as prepared:
            assert prepared.cache.state == CacheState.UNSPECIFIED


@pytest.mark.slow
def test_parts_survive_restarts(tmp_path: Path, started: list[EmbeddedService]) -> None:
    target = f"unix:{tmp_path}/socket"
    service = start_picky(tmp_path, "--listen", target)
    with nnhal.connect(target) as device:
        prepared = prepare(device, running_sum(), cache=True)
        stream = prepared.stream()
        stream.step([ONE])
        stop_service(service)
        os.kill(started[0].pid, 9)
        service = start_picky(tmp_path, "--listen", target)
        np.testing.assert_array_equal(prepared.execute([ONE, ONE])["negative"], [-2] * 3)
        assert stream.step([ONE])[0].tolist() == [-12] * 3  # the states are in the client
        assert len(started) == 2
    assert not any(map(is_running, started))
    assert stop_service(service) == 0


def test_lost_part_is_prepared_again(picky: Service, started: list[EmbeddedService]) -> None:
    with nnhal.connect(picky.target) as device, prepare(device, chain(Op.ABS, Op.NEG)) as prepared:
        expected = prepared.execute([X])[0]
        os.kill(started[0].pid, 9)
        np.testing.assert_array_equal(prepared.execute([X])[0], expected)
        assert len(started) == 2


# ---- Leaks ----------------------------------------------------------------------------------------------


def is_running(service: EmbeddedService) -> bool:
    try:
        os.kill(service.pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_one_service_for_all_models_of_a_device(picky: Service, started: list[EmbeddedService]) -> None:
    with nnhal.connect(picky.target) as device:
        futures = [device.prepare(chain(*[Op.ABS] * i, Op.NEG), fallback=True) for i in range(1, 6)]
        for future in futures:
            np.testing.assert_array_equal(future.result(60).execute([X])[0], -np.abs(X))
        (service,) = started
        assert is_running(service)
        with nnhal.connect(picky.target) as other:
            prepare(other, chain(Op.NEG))
            assert len(started) == 2
        assert not is_running(started[1])
    assert not is_running(service)
    device.close()
    with pytest.raises(nnhal.HalError, match="closed"):
        prepare(device, chain(Op.NEG))
    assert len(started) == 2


@pytest.mark.nightly
def test_models_are_released(picky: Service) -> None:
    """More models in sequence than a session may have."""
    with nnhal.connect(picky.target) as device:
        for _ in range(300):
            with prepare(device, chain(Op.ABS, Op.NEG)) as prepared:
                prepared.execute([X])
