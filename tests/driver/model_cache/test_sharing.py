"""Preparation from a prepared model instead of cache files: the new object shares the plan."""

import gc
import os
import queue
import weakref

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    CacheState,
    DataLocation,
    ErrorStatus,
    Memory,
    Model,
    Request,
    RequestArgument,
)
from nnhal.types import OperationType as Op
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.launch import DeviceCall
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import Deadline, now_ns
from tests.driver.control_flow_models import VALUES, adds_one
from tests.driver.fake_backend import chain
from tests.driver.model_cache.cache_files import Pair, flip
from tests.driver.model_cache.conftest import Devices
from tests.driver.model_cache.preparation import launch, load, save
from tests.driver.one_operation import execute

INPUT = np.array([1, 2], np.float32)


def share(device: Device, prepared: PreparedModel, pair: Pair, deadline_ns: int = -1) -> Outcome:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model_from_cache(outcomes.put, pair.files(), DeviceCall(Deadline(deadline_ns)), prepared)
    return outcomes.get_nowait()  # nothing is queued


@pytest.fixture
def device(devices: Devices) -> Device:
    return devices.create("CpuRef")


@pytest.fixture
def first(device: Device, pair: Pair) -> Outcome:
    saved = save(device, chain(Op.ADD, Op.MUL), pair.files())
    assert saved.cache.state == CacheState.SAVED
    return load(device, pair.files())


def test_only_the_plan_is_shared(device: Device, first: Outcome, pair: Pair) -> None:
    assert first.prepared_model is not None
    second = share(device, first.prepared_model, pair)
    assert (second.status, second.cache, second.placement) == (ErrorStatus.NONE, first.cache, first.placement)
    assert second.prepared_model is not None and second.prepared_model is not first.prepared_model
    assert second.prepared_model.plan is first.prepared_model.plan
    assert second.prepared_model.latencies is not first.prepared_model.latencies
    np.testing.assert_array_equal(execute(second, [INPUT])[1][0], execute(first, [INPUT])[1][0])


def test_buffers_are_not_shared(device: Device, first: Outcome, pair: Pair) -> None:
    assert first.prepared_model is not None
    second = share(device, first.prepared_model, pair).prepared_model
    assert second is not None
    role = BufferRole(0, 0, 1.0)
    buffer = device.allocate(BufferDesc(()), [first.prepared_model], [], [role])
    output = RequestArgument(False, DataLocation(1, 0, 0))
    argument = RequestArgument(False, DataLocation(0, 0, INPUT.nbytes))
    request = Request((argument,), (output,), (Memory.of(INPUT), BufferToken(buffer.token)))
    first.prepared_model.execute_synchronously(request)
    with pytest.raises(HalError) as caught:
        second.execute_synchronously(request)
    assert caught.value.rule == "V-REQ-02"  # like any unknown token


def test_last_prepared_model_frees_the_plan(device: Device, pair: Pair) -> None:
    save(device, chain(Op.ADD, Op.MUL), pair.files())
    saved = load(device, pair.files())
    assert saved.prepared_model is not None
    second = share(device, saved.prepared_model, pair)
    assert second.prepared_model is not None
    graph = second.prepared_model.plan.graph
    assert "operations" in vars(graph)
    plan = weakref.ref(second.prepared_model.plan)
    gc.disable()
    try:
        del saved
        assert "operations" in vars(graph)  # the second model needs it
        execute(second, [INPUT])
        del second
        assert plan() is None and "operations" not in vars(graph)
    finally:
        gc.enable()


def test_deadlines_are_enforced(device: Device, first: Outcome, pair: Pair) -> None:
    assert first.prepared_model is not None
    late = share(device, first.prepared_model, pair, now_ns() - 1)
    assert (late.status, late.prepared_model) == (ErrorStatus.MISSED_DEADLINE_PERSISTENT, None)
    with pytest.raises(HalError) as caught:
        share(device, first.prepared_model, pair, -2)
    assert caught.value.rule == "V-PREP-03"


def test_changed_model_cache_is_not_answered_from_memory(device: Device, first: Outcome, pair: Pair) -> None:
    at = os.fstat(pair.model).st_size // 2
    flip(pair.model, at)
    outcome, launched = launch(device, pair.files(), first.prepared_model)
    assert (outcome.status, outcome.damaged, launched) == (ErrorStatus.GENERAL_FAILURE, True, False)
    flip(pair.model, at)
    outcome, launched = launch(device, pair.files(), first.prepared_model)
    assert first.prepared_model is not None and outcome.prepared_model is not None and launched
    assert outcome.prepared_model.plan is first.prepared_model.plan


def test_changed_data_cache_is_loaded_again(device: Device, pair: Pair) -> None:
    save(device, Model(adds_one(), operand_values=VALUES), pair.files())
    first = load(device, pair.files()).prepared_model
    flip(pair.data, 0)
    outcome, launched = launch(device, pair.files(), first)
    assert (outcome.status, outcome.damaged, launched) == (ErrorStatus.GENERAL_FAILURE, True, True)


def test_other_genuine_files_are_loaded(device: Device, first: Outcome, pair: Pair) -> None:
    save(device, chain(Op.ADD, Op.SUB), pair.files())
    outcome, launched = launch(device, pair.files(), first.prepared_model)
    assert first.prepared_model is not None and outcome.prepared_model is not None and launched
    assert outcome.prepared_model.plan is not first.prepared_model.plan
    np.testing.assert_array_equal(execute(outcome, [INPUT])[1][0], execute(load(device, pair.files()), [INPUT])[1][0])
