"""Launches of preparations by tests."""

from nnhal.types import Model, PrepareModelConfig
from nnhal_driver.device import Device
from nnhal_driver.execution.buffer import ReserveMemory, reserve_nothing
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_driver.preparation.launch import DeviceCall, GivenModel, LaunchOptions, PreparationLaunch
from nnhal_driver.preparation.outcome import PreparationCallback
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import Deadline


def launch_preparation(
    device: Device,
    model: Model,
    callback: PreparationCallback,
    config: PrepareModelConfig | None = None,
    cache: CacheFiles | None = None,
    digest: bytes = b"",
    reserve: ReserveMemory = reserve_nothing,
) -> Cancellation:
    """Launch a preparation of a model, as the HAL describes it, and return its cancellation."""
    config = config or PrepareModelConfig()
    call = DeviceCall(Deadline(config.deadline_ns), reserve=reserve)
    hints, names = config.compilation_hints, config.extension_name_to_prefix
    options = LaunchOptions(config.preference, config.priority, hints, names)
    device.prepare_model(PreparationLaunch(GivenModel(model, digest, cache), callback, call, options))
    return call.cancellation
