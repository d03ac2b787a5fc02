"""Device with cache files: what is saved comes back, from any placement; what is wrong with the files is told."""

import os
import queue
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from driver.backends.api import (
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    Sections,
    SubgraphView,
    Support,
)
from driver.backends.reference.backend import CpuRef
from driver.caching.container import Container
from driver.caching.files import CacheFiles
from driver.caching.origin import cpu_digest
from driver.device import Device, Outcome
from nnhal.errors import HalError
from nnhal.types import (
    AnyArray,
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
from tests.driver.caching.conftest import Devices
from tests.driver.caching.pair import KEY, TOKEN, Pair, contents, flip, rewrite
from tests.driver.one_operation import execute
from tests.driver.test_control_flow import VALUES, GraphWriter, adds_one, choose, counts, doubles, less_than, loop
from tests.driver.test_device import chain

ONE = np.array([1], np.float32)
PLUS_ONE = Model(adds_one(), operand_values=VALUES)
TRUE, FALSE = np.array([True]), np.array([False])


class Saving(CpuRef):
    """Takes the first two operations, and saves a weight and an axis."""

    id = "Saving"
    loaded: ClassVar[list[Sections]] = []

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.index < 2 else Support("only the first two")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _Saved(super().compile(subgraph, options))

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        self.loaded.append(sections)
        return _Saved(super().compile(subgraph, options))

    def fingerprint(self) -> str:
        return "engine 1"


class _Saved(CompiledSubgraph):
    def __init__(self, real: CompiledSubgraph) -> None:
        self._real = real

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self._real.execute(inputs, outputs, run)

    def save(self) -> Sections:
        return Sections(b"head", (np.array([1.5], np.float32), np.array([7], np.int32)))


def save(device: Device, model: Model, files: CacheFiles | None, config: PrepareModelConfig | None = None) -> Outcome:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model(model, outcomes.put, config or PrepareModelConfig(), files)
    outcome = outcomes.get(timeout=60)
    assert outcome.status == ErrorStatus.NONE, outcome.reason
    return outcome


def load(device: Device, files: CacheFiles) -> Outcome:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model_from_cache(outcomes.put, files)
    outcome = outcomes.get(timeout=60)
    assert (outcome.prepared_model is None) == (outcome.status != ErrorStatus.NONE)
    return outcome


def missed(device: Device, files: CacheFiles) -> str:
    """Why nothing is loaded; asking beforehand gives the same answer."""
    outcome = load(device, files)
    assert (outcome.status, outcome.cache.state) == (ErrorStatus.GENERAL_FAILURE, CacheState.MISS)
    assert outcome.reason == f"cache miss: {outcome.cache.reason}"
    assert device.check_cache(files) == outcome.cache
    return outcome.cache.reason


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
def test_another_device_loads_what_one_saved(
    backends: tuple[str, ...], model: Model, inputs: list[list[AnyArray]], pair: Pair, devices: Devices
) -> None:
    made = [[Saving() if one == "Saving" else one for one in backends] for _ in range(2)]
    saved = save(devices.of(*made[0]), model, pair.files())
    assert (saved.cache.state, saved.warnings) == (CacheState.SAVED, ())
    loading = devices.of(*made[1])
    assert loading.check_cache(pair.files()).state == CacheState.HIT
    loaded = load(loading, pair.files())
    assert (loaded.status, loaded.cache.state, loaded.reason) == (ErrorStatus.NONE, CacheState.HIT, "")
    assert loaded.prepared_model is not None and saved.prepared_model is not None
    assert loaded.placement == saved.placement
    assert loaded.prepared_model.inputs == saved.prepared_model.inputs
    assert loaded.prepared_model.outputs == saved.prepared_model.outputs
    for arrays in inputs:
        np.testing.assert_array_equal(execute(loaded, arrays)[1][0], execute(saved, arrays)[1][0])


def test_a_subgraph_that_runs_in_two_places_is_saved_once(pair: Pair, devices: Devices) -> None:
    writer = GraphWriter()
    inputs = [writer.input(T.TENSOR_BOOL8), writer.reference(0), writer.reference(0), writer.input()]
    writer.apply(Op.IF, inputs)
    device = devices.of("CpuRef")
    save(device, Model(writer.graph(), (adds_one(),), VALUES), pair.files())
    with pair.opened() as files:
        document = Container(files, KEY).document
    assert (len(document["plans"]), len(document["graphs"])) == (2, 2)
    np.testing.assert_array_equal(execute(load(device, pair.files()), [FALSE, ONE])[1][0], 2 * ONE)


def test_nothing_is_placed_or_compiled_again(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    save(devices.of(Saving(), "CpuRef"), chain(Op.ADD, Op.MUL), pair.files())
    device = devices.of(Saving(), "CpuRef")
    monkeypatch.setattr(Saving, "supports", lambda *_: pytest.fail("placed again"))
    monkeypatch.setattr(Saving, "compile", lambda *_: pytest.fail("compiled again"))
    Saving.loaded.clear()
    assert load(device, pair.files()).status == ErrorStatus.NONE
    (sections,) = Saving.loaded
    assert sections.model == b"head"
    assert [array.tolist() for array in sections.data] == [[1.5], [7]]


def test_cpu_acc_lowers_nothing_again(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    save(devices.of("CpuAcc", "CpuRef"), PLUS_ONE, pair.files())
    device = devices.of("CpuAcc", "CpuRef")
    monkeypatch.setattr("driver.backends.litert.compiled.build", lambda *_: pytest.fail("built again"))
    monkeypatch.setattr("driver.graph.Graph._view", lambda *_: pytest.fail("bound again"))
    loaded = load(device, pair.files())
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 2 * ONE)


def test_cpu_acc_falls_back_to_cpu_ref_after_a_load(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(devices.of("CpuAcc", "CpuRef"), PLUS_ONE, pair.files())
    loaded = load(devices.of("CpuAcc", "CpuRef"), pair.files())

    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("driver.backends.litert.compiled.Engine.run", fail)
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 2 * ONE)
    assert "out of luck" in caplog.text


def test_priority_and_preference_are_kept(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
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


# ---- What is wrong when saving ------------------------------------------------------------------------------


def test_no_cache_is_asked_for(devices: Devices) -> None:
    device = devices.of("CpuRef")
    assert device.get_number_of_cache_files_needed() == NumberOfCacheFiles(1, 1)
    for files in (None, CacheFiles(b"", [], [])):
        outcome = save(device, PLUS_ONE, files)
        assert (outcome.cache.state, outcome.warnings) == (CacheState.UNSPECIFIED, ())


def wrong_files(pair: Pair) -> list[tuple[CacheFiles, str]]:
    """Cache arguments that cannot be used, and what is said of them. Opens descriptors."""
    path = f"/proc/self/fd/{pair.model}"
    reading, writing = os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY)
    return [
        (CacheFiles(TOKEN, [pair.model] * 2, [pair.data]), "2 model cache files; this device needs 1"),
        (CacheFiles(TOKEN, [pair.model], []), "0 data cache files"),
        (CacheFiles(TOKEN, [], [pair.data]), "0 model cache files"),
        (CacheFiles(TOKEN[1:], [pair.model], [pair.data]), "the cache token has 31 bytes"),
        (CacheFiles(TOKEN, [reading], [pair.data]), "the model cache file is open for reading only"),
        (CacheFiles(TOKEN, [pair.model], [writing]), "the data cache file is open for writing only"),
        (CacheFiles(TOKEN, [pair.model], [9999]), "the data cache file cannot be used"),
        (CacheFiles(TOKEN, [-1], [pair.data]), "the model cache file cannot be used"),
    ]


def close_extra(files: CacheFiles, pair: Pair) -> None:
    for descriptor in {*files.model, *files.data} - {pair.model, pair.data, 9999, -1}:
        os.close(descriptor)


def test_wrong_files_never_fail_a_preparation(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
    before = sorted(os.listdir("/proc/self/fd"))
    for files, reason in wrong_files(pair):
        outcome = save(device, PLUS_ONE, files)
        assert outcome.cache.state == CacheState.NOT_SAVED
        assert reason in outcome.cache.reason
        assert [(w.code, w.text) for w in outcome.warnings] == [("cache-not-saved", outcome.cache.reason)]
        np.testing.assert_array_equal(execute(outcome, [ONE])[1][0], 2 * ONE)
        close_extra(files, pair)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_file_that_cannot_be_written_is_a_warning(pair: Pair, devices: Devices) -> None:
    pipes = os.pipe()
    rw = os.open(f"/proc/self/fd/{pipes[0]}", os.O_RDWR)
    outcome = save(devices.of("CpuRef"), PLUS_ONE, CacheFiles(TOKEN, [pair.model], [rw]))
    assert outcome.cache.state == CacheState.NOT_SAVED
    assert "cannot be written" in outcome.cache.reason
    assert contents(pair.model) == b""
    for descriptor in (*pipes, rw):
        os.close(descriptor)


def test_a_model_that_is_half_written_does_not_stay(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("the disk is full")

    monkeypatch.setattr("driver.caching.container._seal", fail)
    outcome = save(devices.of("CpuRef"), PLUS_ONE, pair.files())
    assert outcome.cache.state == CacheState.NOT_SAVED
    assert "the disk is full" in outcome.cache.reason
    assert contents(pair.model) == b""


def test_a_backend_that_fails_to_save_is_a_warning(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> Sections:
        raise ValueError("out of luck")

    monkeypatch.setattr(_Saved, "save", fail)
    outcome = save(devices.of(Saving(), "CpuRef"), PLUS_ONE, pair.files())
    assert outcome.cache.state == CacheState.NOT_SAVED
    assert "ValueError: out of luck" in outcome.cache.reason


def test_a_launch_error_lets_the_files_go(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(HalError):
            device.prepare_model(PLUS_ONE, lambda _: None, PrepareModelConfig(priority=9), pair.files())
        with pytest.raises(HalError):
            device.prepare_model_from_cache(lambda _: None, pair.files(), -2)
    assert sorted(os.listdir("/proc/self/fd")) == before
    save(device, PLUS_ONE, pair.files())
    load(device, pair.files())
    assert sorted(os.listdir("/proc/self/fd")) == before


# ---- What is wrong when loading -----------------------------------------------------------------------------


def test_wrong_arguments_of_a_load_are_told_twice(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
    save(device, PLUS_ONE, pair.files())
    for files, reason in wrong_files(pair):
        outcomes: list[Outcome] = []
        with pytest.raises(HalError, match=reason) as caught:
            device.prepare_model_from_cache(outcomes.append, files)
        assert [o.status for o in outcomes] == [caught.value.status] == [ErrorStatus.INVALID_ARGUMENT]
        with pytest.raises(HalError, match=reason):
            device.check_cache(files)
        close_extra(files, pair)
    outcomes = []
    with pytest.raises(HalError) as caught:
        device.prepare_model_from_cache(outcomes.append, pair.files(), -2)
    assert (caught.value.rule, outcomes[0].rule) == ("V-PREP-03", "V-PREP-03")


def test_files_of_the_service_itself_need_not_be_writable(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
    save(device, PLUS_ONE, pair.files())
    model, data = (os.open(f"/proc/self/fd/{one}", os.O_RDONLY) for one in (pair.model, pair.data))
    assert load(device, CacheFiles(TOKEN, [model], [data], read_only=True)).status == ErrorStatus.NONE
    os.close(model)
    os.close(data)


def test_nothing_was_saved(pair: Pair, devices: Devices) -> None:
    assert "nothing was saved" in missed(devices.of("CpuRef"), pair.files())


def test_a_passed_deadline(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
    save(device, PLUS_ONE, pair.files())
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model_from_cache(outcomes.put, pair.files(), 0)
    assert outcomes.get(timeout=60).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_reasons(pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    save(devices.of(Saving(), "CpuRef"), PLUS_ONE, pair.files())
    same = devices.of(Saving(), "CpuRef")
    assert "token" in missed(same, pair.files(bytes(32)))
    assert "key" in missed(devices.of(Saving(), "CpuRef", key=None), pair.files())
    assert missed(devices.of("CpuRef"), pair.files()) == (
        "it was made for the backends Saving, CpuRef; the device has CpuRef"
    )
    for others in (("CpuRef", Saving()), (Saving(), "CpuRef", "CpuAcc")):
        assert "it was made for the backends Saving, CpuRef; the device" in missed(devices.of(*others), pair.files())
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "version", "1.3")
        assert "backend Saving was 1 (engine 1), is 1.3 (engine 1)" in missed(
            devices.of(Saving(), "CpuRef"), pair.files()
        )
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "fingerprint", lambda _: "engine 2")
        assert "is 1 (engine 2)" in missed(devices.of(Saving(), "CpuRef"), pair.files())
    with monkeypatch.context() as patch:
        patch.setattr("driver.device.DRIVER_VERSION", "9.9")
        assert "driver 0.1.0, this is 9.9" in missed(devices.of(Saving(), "CpuRef"), pair.files())
    with monkeypatch.context() as patch:
        patch.setattr("driver.caching.origin.cpu_digest", lambda: cpu_digest()[::-1])
        assert "CPU" in missed(devices.of(Saving(), "CpuRef"), pair.files())
    assert load(same, pair.files()).status == ErrorStatus.NONE


def test_changed_files(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuRef")
    save(device, PLUS_ONE, pair.files())
    for descriptor, reason in ((pair.model, "seal"), (pair.data, "digest")):
        at = os.fstat(descriptor).st_size // 2
        flip(descriptor, at)
        assert reason in missed(device, pair.files())
        assert load(device, pair.files()).damaged
        flip(descriptor, at)
    rewrite(pair.data, lambda held: held + b"\0")
    assert "extended" in missed(device, pair.files())


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_unchecked_data_gives_wrong_answers_and_nothing_worse(backend: str, pair: Pair, devices: Devices) -> None:
    save(devices.of(backend), PLUS_ONE, pair.files())
    device = devices.of(backend, check=False)
    held = contents(pair.data)
    assert ONE.tobytes() in held
    rewrite(pair.data, lambda held: held.replace(ONE.tobytes(), (5 * ONE).tobytes()))
    loaded = load(device, pair.files())
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 6 * ONE)
    assert "digest" in device.check_cache(pair.files()).reason


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_what_steers_is_sealed(backend: str, pair: Pair, devices: Devices) -> None:
    """(x + [1, ..., 1]) reshaped: unchecked data of other bytes brings other numbers, never another shape."""
    writer = GraphWriter()
    x, ones = writer.input(shape=(2, 3)), writer.constant(T.TENSOR_FLOAT32, 8, (1,))
    shape, none = writer.constant(T.TENSOR_INT32, 16, (2,)), writer.constant(T.INT32, 0)
    writer.operands[shape] = replace(writer.operands[shape], location=DataLocation(0, 16, 8))
    added = writer.apply(Op.ADD, [x, ones, none], shape=(2, 3), last=False)
    writer.apply(Op.RESHAPE, [added, shape], shape=(3, 2))
    values = VALUES.ljust(16, b"\0") + np.array([3, 2], np.int32).tobytes()
    save(devices.of(backend), Model(writer.graph(), operand_values=values), pair.files())
    rewrite(pair.data, lambda held: bytes(len(held)))
    loaded = load(devices.of(backend, check=False), pair.files())
    numbers = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(execute(loaded, [numbers.reshape(2, 3)])[1][0], numbers.reshape(3, 2))


def test_a_model_lives_on_without_its_files(pair: Pair, devices: Devices) -> None:
    device = devices.of("CpuAcc", "CpuRef")
    save(device, PLUS_ONE, pair.files())
    loaded = load(device, pair.files())
    for descriptor in (pair.model, pair.data):
        os.ftruncate(descriptor, 0)
    np.testing.assert_array_equal(execute(loaded, [ONE])[1][0], 2 * ONE)


def test_a_backend_that_fails_to_load_fails_the_preparation(
    pair: Pair, devices: Devices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(devices.of(Saving(), "CpuRef"), PLUS_ONE, pair.files())

    def fail(*_: object) -> CompiledSubgraph:
        raise ValueError("out of luck")

    monkeypatch.setattr(Saving, "load", fail)
    outcome = load(devices.of(Saving(), "CpuRef"), pair.files())
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "out of luck" in outcome.reason
