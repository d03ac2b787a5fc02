"""Device with cache files: saving, loading, and errors in the files."""

import os
import queue
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from nnhal.errors import HalError, general_failure
from nnhal.types import (
    AnyArray,
    CacheOutcome,
    CacheState,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    Model,
    NumberOfCacheFiles,
    PrepareModelConfig,
    Priority,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.version import __version__
from nnhal_driver.backends.api import (
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    Sections,
    SubgraphView,
    Support,
)
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.model_cache.cache import ModelCache, VerifiedFiles
from nnhal_driver.model_cache.container import Container
from nnhal_driver.model_cache.environment import cpu_digest
from nnhal_driver.model_cache.files import CacheFiles, OpenFiles
from nnhal_driver.preparation.launch import DeviceCall
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import Deadline
from tests.driver.control_flow_models import (
    VALUES,
    GraphWriter,
    adds_one,
    choose,
    counts,
    doubles,
    less_than,
    loop,
)
from tests.driver.fake_backend import chain
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import KEY, TOKEN, Pair, contents, flip, rewrite
from tests.driver.model_cache.conftest import Devices
from tests.driver.model_cache.preparation import load, miss_reason, save
from tests.driver.one_operation import execute, model_of, tensor

DIGEST = bytes(range(32))
ONE = np.array([1], np.float32)
PLUS_ONE = Model(adds_one(), operand_values=VALUES)
TRUE, FALSE = np.array([True]), np.array([False])


class Saving(CpuRef):
    """Supports the first two operations, and saves a weight and an axis."""

    id = "Saving"
    loaded: ClassVar[list[Sections]] = []

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.index < 2 else Support("only the first two operations are supported")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _SavingSubgraph(super().compile(subgraph, options))

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        self.loaded.append(sections)
        return _SavingSubgraph(super().compile(subgraph, options))

    def fingerprint(self) -> str:
        return "engine 1"


class _SavingSubgraph(CompiledSubgraph):
    def __init__(self, real: CompiledSubgraph) -> None:
        self._real = real

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self._real.execute(inputs, outputs, run)

    def save(self) -> Sections:
        return Sections(b"head", (np.array([1.5], np.float32), np.array([7], np.int32)))


@pytest.mark.parametrize("backends", [("CpuRef",), ("CpuAcc", "CpuRef"), ("Saving", "CpuRef"), ("Saving", "CpuAcc")])
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (PLUS_ONE, [[ONE]]),
        (chain(Op.ADD, Op.MUL, Op.ADD, Op.SUB), [[np.array([1, 2], np.float32)]]),
        (choose(adds_one(), doubles()), [[TRUE, 3 * ONE], [FALSE, 3 * ONE]]),
        (loop(less_than(), counts()), [[ONE, 5 * ONE], [7 * ONE, 5 * ONE]]),
    ],
    ids=["constant", "chain", "if", "while"],
)
def test_another_device_loads_the_saved_model(
    backends: tuple[str, ...], model: Model, inputs: list[list[AnyArray]], pair: Pair, devices: Devices
) -> None:
    saving_backends, loading_backends = (
        [Saving() if backend == "Saving" else backend for backend in backends] for _ in range(2)
    )
    saved = save(devices.create(*saving_backends), model, pair.files())
    assert (saved.cache.state, saved.warnings) == (CacheState.SAVED, ())
    loading = devices.create(*loading_backends)
    assert loading.check_cache(pair.files()).state == CacheState.HIT
    loaded = load(loading, pair.files())
    assert (loaded.status, loaded.cache.state, loaded.reason) == (ErrorStatus.NONE, CacheState.HIT, "")
    assert loaded.prepared_model is not None and saved.prepared_model is not None
    assert loaded.placement == saved.placement
    assert loaded.prepared_model.inputs == saved.prepared_model.inputs
    assert loaded.prepared_model.outputs == saved.prepared_model.outputs
    for arrays in inputs:
        np.testing.assert_array_equal(execute(loaded, arrays)[1][0], execute(saved, arrays)[1][0])


def test_subgraph_with_two_users_is_saved_once(pair: Pair, devices: Devices) -> None:
    writer = GraphWriter()
    inputs = [writer.input(T.TENSOR_BOOL8), writer.reference(0), writer.reference(0), writer.input()]
    writer.apply(Op.IF, inputs)
    device = devices.create("CpuRef")
    save(device, Model(writer.graph(), (adds_one(),), VALUES), pair.files())
    with pair.opened() as files:
        document = Container(files, KEY).document
    assert (len(document["plans"]), len(document["graphs"])) == (2, 2)
    np.testing.assert_array_equal(execute(load(device, pair.files()), [FALSE, ONE])[1][0], 2 * ONE)


def test_loading_does_not_place_or_compile(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    save(devices.create(Saving(), "CpuRef"), chain(Op.ADD, Op.MUL), pair.files())
    device = devices.create(Saving(), "CpuRef")
    monkeypatch.setattr(Saving, "supports", lambda *_: pytest.fail("placed again"))
    monkeypatch.setattr(Saving, "compile", lambda *_: pytest.fail("compiled again"))
    Saving.loaded.clear()
    assert load(device, pair.files()).status == ErrorStatus.NONE
    (sections,) = Saving.loaded
    assert sections.model == b"head"
    assert [array.tolist() for array in sections.data] == [[1.5], [7]]


def test_loading_cpu_acc_does_not_convert(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    save(devices.create("CpuAcc", "CpuRef"), PLUS_ONE, pair.files())
    device = devices.create("CpuAcc", "CpuRef")
    monkeypatch.setattr("nnhal_driver.backends.litert.subgraph.convert", lambda *_: pytest.fail("built again"))
    monkeypatch.setattr("nnhal_driver.graph.Graph._view", lambda *_: pytest.fail("bound again"))
    loaded = load(device, pair.files())
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 2 * ONE)


def test_cpu_acc_falls_back_to_cpu_ref_after_a_load(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(devices.create("CpuAcc", "CpuRef"), PLUS_ONE, pair.files())
    loaded = load(devices.create("CpuAcc", "CpuRef"), pair.files())

    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("nnhal_driver.backends.litert.subgraph.InterpreterPool.run", fail)
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 2 * ONE)
    assert "out of luck" in caplog.text


def test_priority_and_preference_are_restored(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuRef")
    seen: list[int] = []

    def compile_(self: CpuRef, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        seen.append(options.preference)
        return super(CpuRef, self).compile(subgraph, options)

    config = PrepareModelConfig(ExecutionPreference.SUSTAINED_SPEED, Priority.LOW)
    save(device, PLUS_ONE, pair.files(), config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuRef, "compile", compile_)
        loaded = load(device, pair.files())
    assert loaded.prepared_model is not None
    assert (loaded.prepared_model.priority, seen) == (Priority.LOW, [ExecutionPreference.SUSTAINED_SPEED])


# ---- Errors when saving ------------------------------------------------------------------------------------


def test_preparation_without_cache_files(devices: Devices) -> None:
    device = devices.create("CpuRef")
    assert device.get_number_of_cache_files_needed() == NumberOfCacheFiles(1, 1)
    for files in (None, CacheFiles(b"", [], [])):
        outcome = save(device, PLUS_ONE, files)
        assert (outcome.cache.state, outcome.warnings) == (CacheState.UNSPECIFIED, ())


def invalid_files(pair: Pair) -> list[tuple[CacheFiles, str]]:
    """Return invalid cache arguments and the expected reasons. Opens descriptors."""
    path = f"/proc/self/fd/{pair.model}"
    reading, writing, twin = (os.open(path, mode) for mode in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR))
    return [
        (CacheFiles(TOKEN, [pair.model] * 2, [pair.data]), "2 model cache files; this device needs 1"),
        (CacheFiles(TOKEN, [pair.model], []), "0 data cache files"),
        (CacheFiles(TOKEN, [], [pair.data]), "0 model cache files"),
        (CacheFiles(TOKEN[1:], [pair.model], [pair.data]), "the cache token has 31 bytes"),
        (CacheFiles(TOKEN, [reading], [pair.data]), "the model cache file is open for reading only"),
        (CacheFiles(TOKEN, [pair.model], [writing]), "the data cache file is open for writing only"),
        (CacheFiles(TOKEN, [pair.model], [9999]), "the data cache file cannot be used"),
        (CacheFiles(TOKEN, [-1], [pair.data]), "the model cache file cannot be used"),
        (CacheFiles(TOKEN, [pair.model], [pair.model]), "the model cache and the data cache are the same file"),
        (CacheFiles(TOKEN, [pair.model], [twin]), "the model cache and the data cache are the same file"),
    ]


def close_extra(files: CacheFiles, pair: Pair) -> None:
    """Close the descriptors that `invalid_files` opened."""
    for descriptor in {*files.model, *files.data} - {pair.model, pair.data, 9999, -1}:
        os.close(descriptor)


def test_invalid_files_do_not_fail_the_preparation(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuRef")
    before = sorted(os.listdir("/proc/self/fd"))
    for files, reason in invalid_files(pair):
        outcome = save(device, PLUS_ONE, files)
        assert outcome.cache.state == CacheState.NOT_SAVED
        assert reason in outcome.cache.reason
        assert [(w.code, w.text) for w in outcome.warnings] == [("cache-not-saved", outcome.cache.reason)]
        np.testing.assert_array_equal(execute(outcome, [ONE])[1][0], 2 * ONE)
        close_extra(files, pair)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_device_that_does_not_cache(pair: Pair) -> None:
    caching = Device("caching", [CpuRef()], DeviceOptions(cache=CacheOptions(KEY)))
    device = Device("off", [CpuRef()], DeviceOptions(cache=CacheOptions(KEY, unusable="the cache is off")))
    with closing(caching), closing(device):
        save(caching, PLUS_ONE, pair.files())
        assert device.get_number_of_cache_files_needed() == NumberOfCacheFiles(0, 0)
        assert miss_reason(device, pair.files()) == "the cache is off"
        assert miss_reason(device, CacheFiles(b"", [], [])) == "the cache is off"
        saved = contents(pair.model)
        outcome = save(device, PLUS_ONE, pair.files())
        assert outcome.cache == CacheOutcome(CacheState.NOT_SAVED, "the cache is off")
        assert contents(pair.model) == saved
        assert save(device, PLUS_ONE, CacheFiles(b"", [], [])).cache.state == CacheState.UNSPECIFIED


def test_large_model_cache_is_checked_again_in_its_turn(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large contents are not kept between the launch and the turn of a preparation."""
    monkeypatch.setattr("nnhal_driver.model_cache.cache._KEPT_BYTES", 0)
    device = devices.create("CpuRef")
    save(device, PLUS_ONE, pair.files())
    np.testing.assert_array_equal(execute(load(device, pair.files()), [ONE])[1][0], 2 * ONE)
    verify = ModelCache.verify

    def verify_then_damage(cache: ModelCache, files: OpenFiles) -> VerifiedFiles:
        verified = verify(cache, files)
        flip(files.model, os.fstat(files.model).st_size // 2)
        return verified

    monkeypatch.setattr(ModelCache, "verify", verify_then_damage)
    assert "seal" in miss_reason(device, pair.files(), launched=True)


def test_failed_write_is_a_warning(pair: Pair, devices: Devices) -> None:
    pipes = os.pipe()
    rw = os.open(f"/proc/self/fd/{pipes[0]}", os.O_RDWR)
    outcome = save(devices.create("CpuRef"), PLUS_ONE, CacheFiles(TOKEN, [pair.model], [rw]))
    assert outcome.cache.state == CacheState.NOT_SAVED
    assert "cannot be written" in outcome.cache.reason
    assert contents(pair.model) == b""
    for descriptor in (*pipes, rw):
        os.close(descriptor)


def test_incomplete_model_cache_is_erased(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("the disk is full")

    monkeypatch.setattr("nnhal_driver.model_cache.container.compute_seal", fail)
    outcome = save(devices.create("CpuRef"), PLUS_ONE, pair.files())
    assert outcome.cache.state == CacheState.NOT_SAVED
    assert "the disk is full" in outcome.cache.reason
    assert contents(pair.model) == b""


def test_backend_failing_to_save_is_a_warning(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> Sections:
        raise ValueError("out of luck")

    monkeypatch.setattr(_SavingSubgraph, "save", fail)
    outcome = save(devices.create(Saving(), "CpuRef"), PLUS_ONE, pair.files())
    assert outcome.cache.state == CacheState.NOT_SAVED
    assert "ValueError: out of luck" in outcome.cache.reason


def test_launch_errors_close_the_files(pair: Pair, devices: Devices) -> None:
    def refuse(size: int) -> None:
        raise general_failure("no memory")

    device = devices.create("CpuRef")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(HalError):
            launch_preparation(device, PLUS_ONE, lambda _: None, cache=pair.files(), reserve=refuse)
        with pytest.raises(HalError):
            device.prepare_model_from_cache(lambda _: None, pair.files(), DeviceCall(reserve=refuse))
    assert sorted(os.listdir("/proc/self/fd")) == before
    save(device, PLUS_ONE, pair.files())
    load(device, pair.files())
    assert sorted(os.listdir("/proc/self/fd")) == before


# ---- Errors when loading -----------------------------------------------------------------------------------


def test_invalid_arguments_reach_caller_and_callback(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuRef")
    save(device, PLUS_ONE, pair.files())
    for files, reason in invalid_files(pair):
        outcomes: list[Outcome] = []
        with pytest.raises(HalError, match=reason) as caught:
            device.prepare_model_from_cache(outcomes.append, files)
        assert [o.status for o in outcomes] == [caught.value.status] == [ErrorStatus.INVALID_ARGUMENT]
        with pytest.raises(HalError, match=reason):
            device.check_cache(files)
        close_extra(files, pair)
    outcomes = []
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(outcomes.append, pair.files(), DeviceCall(Deadline(-2)))
    assert (caught.value.rule, outcomes[0].rule) == ("V-PREP-03", "V-PREP-03")


def test_read_only_files_of_the_service(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuRef")
    save(device, PLUS_ONE, pair.files())
    model, data = (os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY) for descriptor in (pair.model, pair.data))
    assert load(device, CacheFiles(TOKEN, [model], [data], read_only=True)).status == ErrorStatus.NONE
    os.close(model)
    os.close(data)


def test_empty_files(pair: Pair, devices: Devices) -> None:
    assert "nothing was saved" in miss_reason(devices.create("CpuRef"), pair.files())


def test_expired_deadline(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuRef")
    save(device, PLUS_ONE, pair.files())
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model_from_cache(outcomes.put, pair.files(), DeviceCall(Deadline(0)))
    assert outcomes.get(timeout=60).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_miss_reasons(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    save(devices.create(Saving(), "CpuRef"), PLUS_ONE, pair.files())
    unchanged = devices.create(Saving(), "CpuRef")
    assert "token" in miss_reason(unchanged, pair.files(bytes(32)))
    assert "key" in miss_reason(devices.create(Saving(), "CpuRef", key=None), pair.files())
    assert miss_reason(devices.create("CpuRef"), pair.files()) == (
        "it was made for the backends Saving, CpuRef; the device has CpuRef"
    )
    for others in (("CpuRef", Saving()), (Saving(), "CpuRef", "CpuAcc")):
        assert "it was made for the backends Saving, CpuRef; the device" in miss_reason(
            devices.create(*others), pair.files()
        )
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "version", "1.3")
        assert "backend Saving was 1 (engine 1), is 1.3 (engine 1)" in miss_reason(
            devices.create(Saving(), "CpuRef"), pair.files()
        )
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "fingerprint", lambda _: "engine 2")
        assert "is 1 (engine 2)" in miss_reason(devices.create(Saving(), "CpuRef"), pair.files())
    with monkeypatch.context() as patch:
        patch.setattr("nnhal_driver.device.__version__", "9.9")
        assert f"driver {__version__}, this is 9.9" in miss_reason(devices.create(Saving(), "CpuRef"), pair.files())
    assert f"this is {__version__}, no merged partitions" in miss_reason(
        devices.create(Saving(), "CpuRef", merge=False), pair.files()
    )
    with monkeypatch.context() as patch:
        patch.setattr("nnhal_driver.model_cache.environment.cpu_digest", lambda: cpu_digest()[::-1])
        assert "CPU" in miss_reason(devices.create(Saving(), "CpuRef"), pair.files())
    assert load(unchanged, pair.files()).status == ErrorStatus.NONE


def test_damaged_files(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuRef")
    save(device, PLUS_ONE, pair.files())
    for descriptor, reason in ((pair.model, "seal"), (pair.data, "digest")):
        at = os.fstat(descriptor).st_size // 2
        flip(descriptor, at)
        assert reason in miss_reason(device, pair.files(), launched=descriptor == pair.data)
        assert load(device, pair.files()).damaged
        flip(descriptor, at)
    rewrite(pair.data, lambda data: data + b"\0")
    assert "extended" in miss_reason(device, pair.files())


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_unchecked_data_changes_only_values(backend: str, pair: Pair, devices: Devices) -> None:
    save(devices.create(backend), PLUS_ONE, pair.files())
    device = devices.create(backend, check=False)
    data = contents(pair.data)
    assert ONE.tobytes() in data
    rewrite(pair.data, lambda data: data.replace(ONE.tobytes(), (5 * ONE).tobytes()))
    loaded = load(device, pair.files())
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 6 * ONE)
    assert "digest" in device.check_cache(pair.files()).reason


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_unchecked_data_does_not_change_shapes(backend: str, pair: Pair, devices: Devices) -> None:
    """The target shape of a RESHAPE is sealed, so damaged data cannot change it."""
    writer = GraphWriter()
    x, ones = writer.input(shape=(2, 3)), writer.constant(T.TENSOR_FLOAT32, 8, (1,))
    shape, none = writer.constant(T.TENSOR_INT32, 16, (2,)), writer.constant(T.INT32, 0)
    writer.operands[shape] = replace(writer.operands[shape], location=DataLocation(0, 16, 8))
    added = writer.apply(Op.ADD, [x, ones, none], shape=(2, 3), last=False)
    writer.apply(Op.RESHAPE, [added, shape], shape=(3, 2))
    values = VALUES.ljust(16, b"\0") + np.array([3, 2], np.int32).tobytes()
    save(devices.create(backend), Model(writer.graph(), operand_values=values), pair.files())
    rewrite(pair.data, lambda data: bytes(len(data)))
    loaded = load(devices.create(backend, check=False), pair.files())
    numbers = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(execute(loaded, [numbers.reshape(2, 3)])[1][0], numbers.reshape(3, 2))


def test_loaded_model_does_not_need_its_files(pair: Pair, devices: Devices) -> None:
    device = devices.create("CpuAcc", "CpuRef")
    save(device, PLUS_ONE, pair.files())
    loaded = load(device, pair.files())
    for descriptor in (pair.model, pair.data):
        os.ftruncate(descriptor, 0)
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 2 * ONE)


def test_retrieval_returns_before_the_model_is_loaded(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(devices.create(Saving(), "CpuRef"), PLUS_ONE, pair.files())
    go, load_model = threading.Event(), Saving.load

    def wait_and_load(*arguments: Any) -> CompiledSubgraph:
        assert go.wait(60)
        return load_model(*arguments)

    monkeypatch.setattr(Saving, "load", wait_and_load)
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    try:
        devices.create(Saving(), "CpuRef").prepare_model_from_cache(outcomes.put, pair.files())
        assert outcomes.empty()
    finally:
        go.set()
    assert outcomes.get(timeout=60).status == ErrorStatus.NONE


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_cached_model_runs_with_several_shapes(backend: str, pair: Pair, devices: Devices) -> None:
    rows = tensor(T.TENSOR_FLOAT32, (0, 3))
    backends = dict.fromkeys([backend, "CpuRef"])
    save(devices.create(*backends), model_of(Op.RELU, [(rows, 0)], [rows], constants=False), pair.files())
    loaded = load(devices.create(*backends), pair.files())
    for count in (1, 3, 2):
        data = np.full((count, 3), count - 2, np.float32)
        np.testing.assert_array_equal(execute(loaded, [data])[1][0], np.maximum(data, 0))


def test_backend_failing_to_load_fails_the_preparation(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(devices.create(Saving(), "CpuRef"), PLUS_ONE, pair.files())

    def fail(*_: object) -> CompiledSubgraph:
        raise ValueError("out of luck")

    monkeypatch.setattr(Saving, "load", fail)
    outcome = load(devices.create(Saving(), "CpuRef"), pair.files())
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "out of luck" in outcome.reason


def test_digest_of_the_model_is_saved(pair: Pair, devices: Devices) -> None:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    launch_preparation(devices.create("CpuRef"), PLUS_ONE, outcomes.put, cache=pair.files(), digest=DIGEST)
    saved = outcomes.get(timeout=60)
    loaded = load(devices.create("CpuRef"), pair.files())
    for outcome in (saved, loaded):
        assert outcome.prepared_model is not None and outcome.prepared_model.digest == DIGEST


def test_digest_is_unknown_by_default(pair: Pair, devices: Devices) -> None:
    save(devices.create("CpuRef"), PLUS_ONE, pair.files())
    loaded = load(devices.create("CpuRef"), pair.files())
    assert loaded.prepared_model is not None and loaded.prepared_model.digest == b""


@pytest.mark.parametrize("digest", [b"", DIGEST[::-1]])
def test_entry_of_another_model_is_a_miss(pair: Pair, devices: Devices, digest: bytes) -> None:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device = devices.create("CpuRef")
    launch_preparation(device, PLUS_ONE, outcomes.put, cache=pair.files(), digest=digest)
    assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
    expecting = replace(pair.files(), digest=DIGEST)
    assert miss_reason(devices.create("CpuRef"), expecting) == "it was saved for another model"
    launch_preparation(device, PLUS_ONE, outcomes.put, cache=expecting, digest=digest)
    refused = outcomes.get(timeout=60)
    assert refused.cache.state == CacheState.NOT_SAVED and "another digest" in refused.cache.reason
    assert load(device, pair.files()).cache.state == CacheState.HIT  # the entry is unchanged
