"""The suite `cachesec` (CACHESEC): cache files that were tampered with, and tokens that are not the right ones.

Each check takes ten seeds, as the vendor test suite does; a failure names the seed.
"""

import random
from collections.abc import Callable

from nnhal.types import ErrorStatus
from tools.conformance.caching.models import mobilenet
from tools.conformance.caching.trial import TOKEN, Retrieved, Trial, on_models
from tools.conformance.check import NotServiceSpecific, Skipped

SEEDS = range(10)

MOST_APPENDED = 256

Tamper = Callable[[Trial, str, random.Random], str]
"""Changes a file; says how."""


def _flip(trial: Trial, name: str, rng: random.Random) -> str:
    size = trial.folder.size(name)
    if not size:
        raise Skipped("X7", f"{name} is empty")
    bit = rng.randrange(size * 8)
    trial.folder.flip(name, bit)
    return f"bit {bit} of {name} flipped"


def _append(trial: Trial, name: str, rng: random.Random) -> str:
    data = rng.randbytes(rng.randint(1, MOST_APPENDED))
    trial.folder.put(name, data, trial.folder.size(name))
    return f"{len(data)} bytes appended to {name}"


def _refused(trial: Trial, id_: str, retrieved: Retrieved, what: str) -> None:
    trial.expect_refused(id_, retrieved, what)


def _unharmed(trial: Trial, id_: str, retrieved: Retrieved, what: str) -> None:
    """Nothing crashed, and there is a model exactly with NONE."""
    agrees = (retrieved.answer.status == ErrorStatus.NONE) == bool(retrieved.model)
    trial.judge.expect(id_, agrees, f"prepareModelFromCache, {what}", "a model exactly with NONE", retrieved)
    try:
        trial.target.ping()
    except NotServiceSpecific as error:
        trial.judge.expect(id_, False, f"a ping after prepareModelFromCache, {what}", "an answer", error)


def _register(id_: str, kind: str, tamper: Tamper, verdict: Callable[[Trial, str, Retrieved, str], None]) -> None:
    @on_models(id_, models=mobilenet)
    def tampered(trial: Trial) -> None:
        trial.demand_caching()
        for seed in SEEDS:
            rng = random.Random(seed)
            for name in trial.model_files if kind == "model" else trial.data_files:
                trial.save_right()
                what = f"{tamper(trial, name, rng)} (seed {seed})"
                verdict(trial, id_, trial.retrieve_right(), what)
                trial.forget_models()


_register("CACHESEC-01", "model", _flip, _refused)
_register("CACHESEC-02", "model", _append, _refused)
_register("CACHESEC-03", "data", _flip, _unharmed)
_register("CACHESEC-04", "data", _append, _unharmed)


@on_models("CACHESEC-05", models=mobilenet)
def another_token(trial: Trial) -> None:
    """One bit of it is another."""
    trial.demand_caching()
    for seed in SEEDS:
        trial.save_right()
        bit = random.Random(seed).randrange(len(TOKEN) * 8)
        token = bytearray(TOKEN)
        token[bit // 8] ^= 1 << bit % 8
        what = f"bit {bit} of the token flipped (seed {seed})"
        trial.expect_refused("CACHESEC-05", trial.retrieve_right(bytes(token)), what)
        trial.forget_models()
