"""Backends of a third party, on a service: exact results, extensions, the cache, hooks, and the conformance suite."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from typer.testing import CliRunner

import nnhal
from nnhal.types import AnyArray, CacheState, Model, Operand, OperandType, OperationType
from nnhal_tools.cli import app
from tests.conformance_sample import SAMPLE
from tests.driver.backends.native.building import build
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.shared import shared

FOLDER = Path(__file__).parent
OPTIONS = ("--backends", "Lut,Bits,CpuRef", "--no-merge-partitions")
CODES = np.arange(256, dtype=np.uint8)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copy(FOLDER / "Audit_Lut_backend.py", folder)
    build(FOLDER / "Audit_Bits_backend.c", folder / "Audit_Bits_backend.so")
    return folder


@pytest.fixture(scope="module")
def trace(plugins: Path) -> Path:
    return plugins / "trace"


@pytest.fixture(scope="module")
def service(plugins: Path, trace: Path) -> Iterator[Service]:
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(plugins), "AUDIT_TRACE": str(trace)}
    started = start_service(plugins, *OPTIONS, **settings)
    yield started
    assert stop_service(started) == 0
    events = [line.split() for line in trace.read_text().splitlines()]
    assert events[-1][0] == "destroy", "an orderly stop destroys the backend after everything else"
    sizes = {name: sorted(size for event, size in events if event == name) for name in ("allocate", "free")}
    assert sizes["allocate"] == sizes["free"], "all memory of the allocator is freed"


@pytest.fixture
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as connected:
        yield connected


def assert_runs_on(backend: str, prepared: nnhal.PreparedModel) -> None:
    assert {operation.backend for operation in prepared.placement.operations} == {backend}


# ---- Lut, in Python


def quantized(operation: OperationType, source: Operand, target: Operand) -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(source.type, source.dimensions, scale=source.scale, zero_point=source.zero_point)
    b.output(b.add(operation, x, output=target))
    return b.build()


FUNCTIONS: dict[OperationType, tuple[Callable[[AnyArray], AnyArray], float, int]] = {
    OperationType.TANH: (np.tanh, 1 / 128, 128),
    OperationType.LOGISTIC: (lambda x: 1 / (1 + np.exp(-x)), 1 / 256, 0),
    OperationType.RELU: (lambda x: x.clip(0), 0.05, 100),
    OperationType.RELU1: (lambda x: x.clip(-1, 1), 0.05, 100),
    OperationType.RELU6: (lambda x: x.clip(0, 6), 0.05, 100),
}


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("operation", FUNCTIONS, ids=lambda operation: operation.name)
def test_tables_agree_with_numpy(operation: OperationType, is_signed: bool, device: nnhal.Device) -> None:
    function, scale, zero_point = FUNCTIONS[operation]
    offset = 128 if is_signed else 0
    type_ = OperandType.TENSOR_QUANT8_ASYMM_SIGNED if is_signed else OperandType.TENSOR_QUANT8_ASYMM
    source = Operand(type_, (256,), 0.05, 100 - offset)
    model = quantized(operation, source, Operand(type_, (256,), scale, zero_point - offset))
    value = CODES.view(np.int8) if is_signed else CODES
    expected = np.round(function((value.astype(float) - source.zero_point) * np.float32(0.05)) / np.float32(scale))
    limits = np.iinfo(value.dtype)
    for state in (CacheState.SAVED, CacheState.HIT):
        prepared = device.prepare(model, cache=True).result()
        assert prepared.cache.state == state
        assert_runs_on("Lut", prepared)
        (result,) = prepared.execute([value])
        np.testing.assert_array_equal(result, (expected + zero_point - offset).clip(limits.min, limits.max))


def lookup_model(table: bytes | None = None) -> Model:
    """Return a model of y = LOOKUP(x, CHAIN(a, b)). `table`: the value of b if it is a constant."""
    b = nnhal.ModelBuilder()
    lut = b.extension("com.audit.lut")
    tables, bytes_ = Operand(lut.operand_type(1)), Operand(OperandType.TENSOR_QUANT8_ASYMM, (3,), 1.0)
    x, first = b.input(bytes_.type, (3,), scale=1.0), b.input(tables.type)
    second = (
        b.input(tables.type) if table is None else b.constant(np.frombuffer(table, "V256").reshape(()), tables.type)
    )
    chained = b.add(lut.operation_type(1), first, second, output=tables)
    b.output(b.add(lut.operation_type(0), x, chained, output=bytes_))
    b.output(chained)
    return b.build()


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_scalars_of_the_extension_are_given_as_bytes(
    service: Service, is_constant: bool, transport: Literal["auto", "grpc"]
) -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.permutation(CODES) for _ in range(2))
    value = np.array([0, 7, 255], np.uint8)
    inputs: list[AnyArray | bytes] = [value, a.tobytes(), *([] if is_constant else [b.tobytes()])]
    with nnhal.connect(service.target, transport=transport) as device:
        model = lookup_model(b.tobytes() if is_constant else None)
        for _ in range(2):
            prepared = device.prepare(model, cache=True).result()
            assert_runs_on("Lut", prepared)
            looked_up, chained = prepared.execute(inputs)
            np.testing.assert_array_equal(looked_up, b[a][value])
            assert chained.tobytes() == b[a].tobytes()
            with prepared.burst() as burst:
                assert burst.execute(inputs)[1].tobytes() == b[a].tobytes()
            assert prepared.execute_fenced(inputs).result()[1].tobytes() == b[a].tobytes()
            with prepared.reusable(inputs) as execution:
                assert execution.run()[1].tobytes() == b[a].tobytes()
        assert prepared.cache.state == CacheState.HIT


def test_table_of_a_wrong_size_is_refused(device: nnhal.Device) -> None:
    with pytest.raises(nnhal.HalError) as caught:
        device.prepare(lookup_model()).result().execute([CODES[:3], bytes(100), bytes(256)])
    assert caught.value.rule == "V-REQMODEL-07"


def test_constant_table_of_a_wrong_size_is_refused_before_it_runs(device: nnhal.Device) -> None:
    b = nnhal.ModelBuilder()
    lut = b.extension("com.audit.lut")
    bytes_ = Operand(OperandType.TENSOR_QUANT8_ASYMM, (3,), 1.0)
    table = b.constant(np.zeros((), "V100"), lut.operand_type(1))
    x = b.input(bytes_.type, (3,), scale=1.0)
    b.output(b.add(lut.operation_type(0), x, table, output=bytes_))
    (operation,) = device.explain(b.build()).operations
    assert operation.backend == "" and any("100" in refusal.reason for refusal in operation.refusals)


# ---- Bits, in C


def logical_model(shape: tuple[int, ...]) -> Model:
    """Return a model of (a and b) or not (a and b) and a."""
    b = nnhal.ModelBuilder()
    bools = Operand(OperandType.TENSOR_BOOL8, shape)
    x, y = (b.input(bools.type, shape) for _ in range(2))
    both = b.add(OperationType.LOGICAL_AND, x, y, output=bools)
    neither = b.add(OperationType.LOGICAL_NOT, both, output=bools)
    b.output(
        b.add(OperationType.LOGICAL_OR, both, b.add(OperationType.LOGICAL_AND, neither, x, output=bools), output=bools)
    )
    b.output(neither)
    return b.build()


def test_logical_operations_run_with_every_shape(device: nnhal.Device) -> None:
    generator = np.random.default_rng(2)
    for shape, lengths in (((0,), (5, 5, 9, 1)), ((4,), (4,))):
        for state in (CacheState.SAVED, CacheState.HIT):
            prepared = device.prepare(logical_model(shape), cache=True).result()
            assert prepared.cache.state == state
            assert_runs_on("Bits", prepared)
            for length in lengths:
                a, b = generator.integers(0, 2, (2, length)).astype(bool)
                result, neither = prepared.execute([a, b])
                np.testing.assert_array_equal(result, a)
                np.testing.assert_array_equal(neither, ~(a & b))


def test_hooks_are_called_in_order(device: nnhal.Device, trace: Path) -> None:
    seen = len(trace.read_text().splitlines())
    prepared = device.prepare(logical_model((0,))).result()
    for length in (5, 5, 9):
        prepared.execute([np.ones(length, bool)] * 2)
    names = [line.split()[0] for line in trace.read_text().splitlines()[seen:]]
    work = [name for name in names if name not in ("allocate", "free")]
    run, resize = ["execute_begin", "execute", "wait_finish", "execute_end"], ["resize_begin", "resize", "resize_end"]
    assert work == ["before_load", "compile", "after_load", *resize, *run, *run, *resize, *run]


def test_popcount_agrees_with_numpy(service: Service) -> None:
    words = np.random.default_rng(3).integers(0, 2**63, 7, np.uint64)
    expected = [int(word).bit_count() for word in words]
    b = nnhal.ModelBuilder()
    bits = b.extension("com.audit.bits")
    counts = Operand(OperandType.TENSOR_INT32, (7,))
    b.output(b.add(bits.operation_type(3), b.input(bits.operand_type(5), (7,)), output=counts))
    b.output(b.add(bits.operation_type(3), b.constant(words.view("V8"), bits.operand_type(5)), output=counts))
    model = b.build()
    transports: tuple[Literal["auto", "grpc"], ...] = ("auto", "grpc")
    for transport in transports:
        with nnhal.connect(service.target, transport=transport) as device:
            for _ in range(2):
                prepared = device.prepare(model, cache=True).result()
                assert_runs_on("Bits", prepared)
                values: tuple[AnyArray | bytes, ...] = (words.view("V8"), words.tobytes())
                for value in values:
                    assert [output.tolist() for output in prepared.execute([value])] == [expected, expected]
            assert prepared.cache.state == CacheState.HIT


@pytest.mark.parametrize("backend", ["Lut", "Bits"])
@pytest.mark.parametrize(
    "selected",
    [
        pytest.param(SAMPLE, marks=pytest.mark.slow, id="sample"),
        pytest.param((), marks=pytest.mark.nightly, id="all"),
    ],
)
def test_conformance_passes(backend: str, selected: tuple[str, ...], plugins: Path) -> None:
    options = ["--backends-path", str(plugins), "--backend", f"{backend},CpuRef", "--no-merge-partitions"]
    # a hundred rounds each
    slow = [argument for check in ("CACHE-28", "CACHE-29", "CACHE-30", "CACHE-31") for argument in ("--exclude", check)]
    suites = ["--suite", "basic,generated,cache,extra", *selected]
    result = CliRunner().invoke(app, ["conformance", *suites, *slow, *options])
    assert result.exit_code == 0 and ", 0 failed, " in result.stdout, result.output


VECTORS = {"Lut": ["tanh", "logistic", "relu"], "Bits": ["logical"]}


@pytest.mark.nightly
@pytest.mark.parametrize("backend", VECTORS)
def test_vectors_pass_on_the_backend_itself(backend: str, plugins: Path) -> None:
    options = ["--backends-path", str(plugins), "--backend", f"{backend},CpuRef", "--no-merge-partitions"]
    selected = [argument for name in VECTORS[backend] for argument in ("--select", f"*/{name}*")]
    vectors = ["--vectors", str(shared("vectors")), *selected, "--sample", "1"]
    result = CliRunner().invoke(app, ["conformance", "--suite", "generated", *vectors, *options])
    assert result.exit_code == 0 and ", 0 failed, " in result.stdout, result.output
    assert re.search(rf"^ *{backend}\b.* [1-9]\d* of \d+ ", result.stdout, re.MULTILINE), result.stdout
