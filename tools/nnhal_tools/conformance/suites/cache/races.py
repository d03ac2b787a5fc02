"""Cache files that another thread overwrites, and files of another model (CACHE-28 to -31).

MUL is saved with one token into model files of its own, and ADD with another token into the usual ones. Both use the
same data files. Then the model files of MUL are copied over those of ADD, from the start and without truncation. The
retrieved model must be correct or refused. It runs on one path only, since one execution distinguishes ADD from MUL.
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from nnhal_tools.conformance.caching.models import operation_chain
from nnhal_tools.conformance.caching.round_trip import (
    TOKEN,
    CacheRoundTrip,
    RetrievedModel,
    file_cache,
    prepare_and_save,
    round_trip_check,
)
from nnhal_tools.conformance.check import attribute_failures
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import supported_model

ROUNDS = 100
MAX_COPIES = 8
"""Maximum number of copies in a round."""

ADD_TOKEN = bytes([1, *TOKEN[1:]])


def _add_chain(kind: str) -> Case:
    return operation_chain("ADD", kind)


def _save_mul(trial: CacheRoundTrip) -> dict[str, bytes]:
    """Save MUL in separate model files, and return their contents by the names of the files of ADD."""
    trial.require_caching()
    kind = "quant8" if "quant8" in trial.case.name else "float32"
    model = supported_model(trial.target, operation_chain("MUL", kind))
    names = [f"{name}_mul" for name in trial.model_files]
    with trial.folder.open_files(names, trial.data_files) as files:
        prepared = prepare_and_save(trial.target, model, file_cache(TOKEN, files))
    trial.recorder.expect(bool(prepared.model), "saving MUL", "NONE and a model", prepared.callback, check="CACHE-06")
    trial.target.release(prepared.model)
    return {name: trial.folder.read_file(mul) for name, mul in zip(trial.model_files, names, strict=True)}


@contextmanager
def _concurrent_copies(trial: CacheRoundTrip, contents: dict[str, bytes], times: int) -> Iterator[None]:
    """Copy the contents over the model files several times in another thread."""
    with ThreadPoolExecutor(1) as thread:
        copying = thread.submit(_copy, trial, contents, times)
        yield
    copying.result()


def _copy(trial: CacheRoundTrip, contents: dict[str, bytes], times: int = 1) -> None:
    with trial.folder.open_files(list(contents), []) as files:
        for _ in range(times):
            for handle, content in zip(files.model, contents.values(), strict=True):
                trial.folder.seek(handle, 0)
                trial.folder.write(handle, content)


def _expect_add_or_nothing(trial: CacheRoundTrip, check: str, retrieved: RetrievedModel) -> None:
    """Expect any status, a model if and only if the status is NONE, and only ADD as the model."""
    trial.expect_agreement(check, retrieved, "prepareModelFromCache while model files are overwritten")
    if retrieved.model:
        trial.check_execution(check, retrieved.model, "a model from the cache", ["SYNC"])
    trial.release_models()


@round_trip_check("CACHE-28", "save during writes", models=_add_chain)
def save_during_writes(trial: CacheRoundTrip) -> None:
    """Check saving and then retrieving (CACHE-29) while another thread writes."""
    contents, rng = _save_mul(trial), random.Random(28)
    for _ in range(ROUNDS):
        with _concurrent_copies(trial, contents, rng.randint(1, MAX_COPIES)), attribute_failures("CACHE-28"):
            trial.save_to_files(ADD_TOKEN)
        trial.recorder.mark("CACHE-28")
        _expect_add_or_nothing(trial, "CACHE-29", trial.retrieve_from_files(ADD_TOKEN))


@round_trip_check("CACHE-29", "save after writes", models=_add_chain)
def save_after_writes(trial: CacheRoundTrip) -> None:
    """Check a retrieval when the writes ended before the save, so that the model can be retrieved."""
    contents = _save_mul(trial)
    _copy(trial, contents)
    trial.save_to_files(ADD_TOKEN)
    _expect_add_or_nothing(trial, "CACHE-29", trial.retrieve_from_files(ADD_TOKEN))


@round_trip_check("CACHE-30", "retrieval during writes", models=_add_chain)
def retrieval_during_writes(trial: CacheRoundTrip) -> None:
    """Check a retrieval while another thread writes. The files contain ADD at its start."""
    contents, rng = _save_mul(trial), random.Random(30)
    for _ in range(ROUNDS):
        trial.save_to_files(ADD_TOKEN)
        with _concurrent_copies(trial, contents, rng.randint(1, MAX_COPIES)):
            retrieved = trial.retrieve_from_files(ADD_TOKEN)
        _expect_add_or_nothing(trial, "CACHE-30", retrieved)


@round_trip_check("CACHE-31", "files of another model", models=_add_chain)
def files_of_another_model(trial: CacheRoundTrip) -> None:
    """Check that a well-formed model cache of another token is refused."""
    contents = _save_mul(trial)
    trial.save_to_files(ADD_TOKEN)
    _copy(trial, contents)
    trial.expect_refused("CACHE-31", trial.retrieve_from_files(ADD_TOKEN), "model files of another model")
