"""Suite `cachesec` (CACHESEC): cache files that were tampered with, and wrong tokens.

Each check uses ten seeds, as the vendor test suite does. A failure names the seed.
"""

import random
from collections.abc import Callable

from nnhal_tools.conformance.caching.round_trip import TOKEN, CacheRoundTrip, RetrievedModel, round_trip_check
from nnhal_tools.conformance.check import CheckFailed, NotServiceSpecific, Skipped

SEEDS = range(10)

MAX_APPENDED_BYTES = 256

Tamper = Callable[[CacheRoundTrip, str, random.Random], str]
"""Function that changes a cache file and returns a description of the change."""


def _flip(trial: CacheRoundTrip, name: str, rng: random.Random) -> str:
    size = trial.folder.size(name)
    if not size:
        raise Skipped("X7", f"{name} is empty")
    bit = rng.randrange(size * 8)
    trial.folder.flip_bit(name, bit)
    return f"bit {bit} of {name} flipped"


def _append(trial: CacheRoundTrip, name: str, rng: random.Random) -> str:
    data = rng.randbytes(rng.randint(1, MAX_APPENDED_BYTES))
    trial.folder.write_file(name, data, trial.folder.size(name))
    return f"{len(data)} bytes appended to {name}"


def _expect_unharmed(trial: CacheRoundTrip, check: str, retrieved: RetrievedModel, situation: str) -> None:
    """Expect a model if and only if the status is NONE, and a device that still responds."""
    trial.expect_agreement(check, retrieved, f"prepareModelFromCache, {situation}")
    try:
        trial.target.ping()
    except NotServiceSpecific as error:
        stimulus = f"a ping after prepareModelFromCache, {situation}"
        raise CheckFailed(check, stimulus, "a response", error) from None


def _register(
    check: str, kind: str, tamper: Tamper, expect: Callable[[CacheRoundTrip, str, RetrievedModel, str], None]
) -> None:
    @round_trip_check(check)
    def body(trial: CacheRoundTrip) -> None:
        trial.require_caching()
        for seed in SEEDS:
            rng = random.Random(seed)
            for name in trial.model_files if kind == "model" else trial.data_files:
                trial.save_to_files()
                situation = f"{tamper(trial, name, rng)} (seed {seed})"
                expect(trial, check, trial.retrieve_from_files(), situation)
                trial.release_models()


_register("CACHESEC-01", "model", _flip, CacheRoundTrip.expect_refused)
_register("CACHESEC-02", "model", _append, CacheRoundTrip.expect_refused)
_register("CACHESEC-03", "data", _flip, _expect_unharmed)
_register("CACHESEC-04", "data", _append, _expect_unharmed)


@round_trip_check("CACHESEC-05")
def another_token(trial: CacheRoundTrip) -> None:
    """Check that a token with one flipped bit is refused."""
    trial.require_caching()
    for seed in SEEDS:
        trial.save_to_files()
        bit = random.Random(seed).randrange(len(TOKEN) * 8)
        token = bytearray(TOKEN)
        token[bit // 8] ^= 1 << bit % 8
        situation = f"bit {bit} of the token flipped (seed {seed})"
        trial.expect_refused("CACHESEC-05", trial.retrieve_from_files(bytes(token)), situation)
        trial.release_models()
