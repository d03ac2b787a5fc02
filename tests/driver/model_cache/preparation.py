"""Preparations that write to cache files, and loads from them."""

import queue

from nnhal.types import CacheState, ErrorStatus, Model, PrepareModelConfig
from nnhal_driver.device import Device, Outcome
from nnhal_driver.model_cache.files import CacheFiles


def save(device: Device, model: Model, files: CacheFiles | None, config: PrepareModelConfig | None = None) -> Outcome:
    """Prepare a model, which must succeed, and save it."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model(model, outcomes.put, config or PrepareModelConfig(), files)
    outcome = outcomes.get(timeout=60)
    assert outcome.status == ErrorStatus.NONE, outcome.reason
    return outcome


def load(device: Device, files: CacheFiles) -> Outcome:
    """Load a model."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device.prepare_model_from_cache(outcomes.put, files)
    outcome = outcomes.get(timeout=60)
    assert (outcome.prepared_model is None) == (outcome.status != ErrorStatus.NONE)
    return outcome


def miss_reason(device: Device, files: CacheFiles) -> str:
    """Load a model, which must be a cache miss, and return the reason. `check_cache` must give the same."""
    outcome = load(device, files)
    assert (outcome.status, outcome.cache.state) == (ErrorStatus.GENERAL_FAILURE, CacheState.MISS)
    assert outcome.reason == f"cache miss: {outcome.cache.reason}"
    assert device.check_cache(files) == outcome.cache
    return outcome.cache.reason
