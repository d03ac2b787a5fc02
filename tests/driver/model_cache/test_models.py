"""Real models from the cache give the same outputs. The files are about as large as the model."""

import os

import numpy as np
import pytest

import nnhal.tflite
from nnhal.types import CacheState, ErrorStatus
from tests.driver.model_cache.cache_files import Pair
from tests.driver.model_cache.conftest import Devices
from tests.driver.model_cache.preparation import load, save
from tests.driver.one_operation import execute, sample
from tests.shared import shared


@pytest.mark.parametrize("backends", [("CpuAcc", "CpuRef"), ("CpuRef",)], ids=["CpuAcc", "CpuRef"])
@pytest.mark.parametrize("name", ["kws_ref_model", "vww_96_float", "mobilenet_v1_0.25_128_quant"])
def test_loaded_model_gives_the_same_outputs(
    name: str, backends: tuple[str, ...], pair: Pair, devices: Devices
) -> None:
    path = shared(f"models/{name}.tflite")
    saved = save(devices.create(*backends), nnhal.tflite.load(path), pair.files())
    assert saved.cache.state == CacheState.SAVED
    # backend and graph share equal arrays
    assert os.fstat(pair.data).st_size < 1.25 * path.stat().st_size
    loaded = load(devices.create(*backends), pair.files())
    assert loaded.status == ErrorStatus.NONE, loaded.reason
    assert loaded.prepared_model is not None
    inputs = [sample(np.random.default_rng(7), operand) for operand in loaded.prepared_model.inputs]
    for actual, expected in zip(execute(loaded, inputs)[1], execute(saved, inputs)[1], strict=True):
        np.testing.assert_array_equal(actual, expected)
