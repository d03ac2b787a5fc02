"""No change to the files of a model is taken for the model: every byte of a model cache, random edits of a data cache.

NNHAL_FUZZ_EXAMPLES: how many edits in all, half of them without the check of the digest: 400, always the same ones.
"""

import os
import subprocess
import sys

import pytest

from nnhal.types import CacheState, ErrorStatus
from tests.driver.caching.conftest import Devices
from tests.driver.caching.edits import MODELS, Damaged
from tests.driver.caching.pair import Pair, flip
from tests.driver.caching.test_device import load, missed, save

EDITS = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "400"))
EACH = -(-EDITS // (2 * len(MODELS)))
LOADED_EVERY = 199


@pytest.mark.parametrize("backend", MODELS)
def test_every_byte_of_a_model_cache_counts(backend: str, pair: Pair, devices: Devices) -> None:
    device = devices.of(backend)
    save(device, MODELS[backend](), pair.files())
    size = os.fstat(pair.model).st_size
    assert size > 500
    for at in range(size):
        flip(pair.model, at, 1 << at % 8)
        outcome = device.check_cache(pair.files())
        assert outcome.state == CacheState.MISS, at
        if at % LOADED_EVERY == 0:  # and loading says the same, which takes longer
            assert missed(device, pair.files()) == outcome.reason
        flip(pair.model, at, 1 << at % 8)
    assert load(device, pair.files()).status == ErrorStatus.NONE


@pytest.mark.parametrize("backend", MODELS)
def test_edits_of_a_data_cache_are_refused(backend: str, pair: Pair, devices: Devices) -> None:
    device = devices.of(backend)
    damaged = Damaged(device, backend, pair)
    refused = 0
    for seed in range(EACH):
        changed = damaged.edit(seed)
        outcome = load(device, pair.files())
        assert (outcome.prepared_model is None) == changed == outcome.damaged, seed
        refused += changed
    assert refused > EACH * 0.9


@pytest.mark.parametrize("backend", MODELS)
def test_edits_that_nobody_checks_harm_nothing_but_numbers(backend: str, devices: Devices) -> None:
    devices.of(backend)  # skips where it is not installed
    command = [sys.executable, "-m", "tests.driver.caching.edits", backend, "0", str(EACH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 + EACH)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.removeprefix("executed ")) > EACH * 0.6  # truncated and extended ones are refused by size
