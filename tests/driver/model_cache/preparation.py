"""Preparations that write to cache files, and loads from them."""

import queue

from nnhal.errors import HalError
from nnhal.types import CacheState, ErrorStatus, Model, PrepareModelConfig
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.launches import launch_preparation


def save(device: Device, model: Model, files: CacheFiles | None, config: PrepareModelConfig | None = None) -> Outcome:
    """Prepare a model, which must succeed, and save it."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    launch_preparation(device, model, outcomes.put, config or PrepareModelConfig(), files)
    outcome = outcomes.get(timeout=60)
    assert outcome.status == ErrorStatus.NONE, outcome.reason
    return outcome


def launch(device: Device, files: CacheFiles, preloaded: PreparedModel | None = None) -> tuple[Outcome, bool]:
    """Load a model. Return its only outcome, and whether the launch succeeded. A failed one raises the same status."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    error = None
    try:
        device.prepare_model_from_cache(outcomes.put, files, preloaded=preloaded)
    except HalError as raised:
        error = raised
    outcome = outcomes.get(timeout=60)
    assert outcomes.empty()
    assert (outcome.prepared_model is None) == (outcome.status != ErrorStatus.NONE)
    assert error is None or (error.status, error.reason) == (outcome.status, outcome.reason)
    return outcome, error is None


def load(device: Device, files: CacheFiles) -> Outcome:
    """Load a model."""
    return launch(device, files)[0]


def miss_reason(device: Device, files: CacheFiles, *, launched: bool = False) -> str:
    """Load a model, which must be a cache miss, and return the reason. `check_cache` must give the same.

    Args:
        device: the device.
        files: the files.
        launched: whether the miss is found after the launch.
    """
    outcome, was_launched = launch(device, files)
    assert was_launched == launched
    assert (outcome.status, outcome.cache.state) == (ErrorStatus.GENERAL_FAILURE, CacheState.MISS)
    assert outcome.reason == f"cache miss: {outcome.cache.reason}"
    assert device.check_cache(files) == outcome.cache
    return outcome.cache.reason
