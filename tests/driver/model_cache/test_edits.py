"""Edits of cache files are detected: of every byte of a model cache, and random ones of a data cache.

NNHAL_FUZZ_EXAMPLES is the number of edits, by default 400. Half of them are loaded without checking the digest. The
edits are the same each time.
"""

import os
import subprocess
import sys

import pytest

from nnhal.types import CacheState, ErrorStatus
from tests.driver.model_cache.cache_files import Pair, flip
from tests.driver.model_cache.conftest import Devices
from tests.driver.model_cache.edits import MODELS, DamagedCache
from tests.driver.model_cache.preparation import load, miss_reason, save

EDITS = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "400"))
EDITS_PER_TEST = -(-EDITS // (2 * len(MODELS)))
LOAD_INTERVAL = 199


@pytest.mark.parametrize("backend", MODELS)
def test_edits_of_a_model_cache_are_rejected(backend: str, pair: Pair, devices: Devices) -> None:
    device = devices.create(backend)
    save(device, MODELS[backend](), pair.files())
    size = os.fstat(pair.model).st_size
    assert size > 500
    for offset in range(size):
        flip(pair.model, offset, 1 << offset % 8)
        outcome = device.check_cache(pair.files())
        assert outcome.state == CacheState.MISS, offset
        if offset % LOAD_INTERVAL == 0:  # loading gives the same reason, but takes longer
            assert miss_reason(device, pair.files()) == outcome.reason
        flip(pair.model, offset, 1 << offset % 8)
    assert load(device, pair.files()).status == ErrorStatus.NONE


@pytest.mark.parametrize("backend", MODELS)
def test_edits_of_a_data_cache_are_rejected(backend: str, pair: Pair, devices: Devices) -> None:
    device = devices.create(backend)
    damaged = DamagedCache(device, backend, pair)
    rejected = 0
    for seed in range(EDITS_PER_TEST):
        changed = damaged.edit(seed)
        outcome = load(device, pair.files())
        assert (outcome.prepared_model is None) == changed == outcome.damaged, seed
        rejected += changed
    assert rejected > EDITS_PER_TEST * 0.9


@pytest.mark.parametrize("backend", MODELS)
def test_unchecked_edits_change_only_values(backend: str, devices: Devices) -> None:
    devices.create(backend)  # skips the test if the backend is not installed
    command = [sys.executable, "-m", "tests.driver.model_cache.edits", backend, "0", str(EDITS_PER_TEST)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 + EDITS_PER_TEST)
    assert child.returncode == 0, child.stderr[-2000:]
    assert (
        int(child.stdout.removeprefix("executed ")) > EDITS_PER_TEST * 0.6
    )  # the size reveals truncation and extension
