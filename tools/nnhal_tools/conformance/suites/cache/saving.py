"""Saving and retrieving with the right files (CACHE-01 to -07, -10 to -15)."""

from nnhal_tools.conformance.caching.round_trip import (
    CacheRoundTrip,
    RetrievedModel,
    files_needed,
    round_trip_check,
)
from nnhal_tools.conformance.check import CheckRecorder, Skipped, attribute_failures
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check


def needed_files(target: Target, recorder: CheckRecorder) -> None:
    """Check getNumberOfCacheFilesNeeded and its two numbers."""
    files_needed(target, recorder)


for _id in ("CACHE-01", "CACHE-02", "CACHE-03"):
    check(_id)(needed_files)


@round_trip_check("CACHE-04")
def supported_operations(trial: CacheRoundTrip) -> None:
    """Check getSupportedOperations, which the start of the round trip calls."""


@round_trip_check("CACHE-05", "save: launch")
def save_launch(trial: CacheRoundTrip) -> None:
    """Check the launch of a save with the right files."""
    trial.save_to_files()


@round_trip_check("CACHE-06", "save: callback")
def save_callback(trial: CacheRoundTrip) -> None:
    """Check the callbacks of two saves into the same right files."""
    trial.save_to_files()
    trial.save_to_files()


@round_trip_check("CACHE-07", "retrieval")
def retrieval(trial: CacheRoundTrip) -> None:
    """Check retrievals from files without a saved model, and from files with one."""
    trial.retrieve_from_files()
    trial.save_to_files()
    trial.retrieve_from_files()


@round_trip_check("CACHE-10", "no files needed")
def no_files_needed(trial: CacheRoundTrip) -> None:
    """Check that retrieving fails after any preparation. Applies only if the device needs no files."""
    if trial.needs_files:
        raise Skipped("", "the device needs cache files")
    _save_and_retrieve(trial)


@round_trip_check("CACHE-11", "saved model")
def saved_model(trial: CacheRoundTrip) -> None:
    """Check that a saved model can be retrieved (CACHE-11) and executes correctly (CACHE-12)."""
    trial.require_caching()
    retrieved = _save_and_retrieve(trial)
    _expect_saved_model(trial, retrieved, "CACHE-11", "CACHE-12", "a saved model")


@round_trip_check("CACHE-12", "executed after release of the original", saved=True)
def saved_model_executes(trial: CacheRoundTrip) -> None:
    """Check that a retrieved model executes correctly after the release of the original."""
    trial.release_models()
    retrieved = trial.retrieve_from_files()
    _expect_saved_model(trial, retrieved, "CACHE-11", "CACHE-12", "a saved model")


@round_trip_check("CACHE-13", "files at offsets")
def files_at_offsets(trial: CacheRoundTrip) -> None:
    """Check that files at offset 2 can be saved to, and files at offset 1 retrieved from (CACHE-13 to -15)."""
    with trial.open_files() as files:
        for handle in files.all:
            trial.folder.write(handle, bytes(2))
        with attribute_failures("CACHE-13"):
            trial.save(files, situation="files at offset 2")
    trial.recorder.mark("CACHE-13")
    trial.release_models()
    with trial.open_files() as files:
        for handle in files.all:
            trial.folder.read(handle, 1)
        retrieved = trial.retrieve(files, fallback=True)
    if not trial.needs_files:
        trial.expect_refused("CACHE-10", retrieved, "a device without cache files")
        return
    _expect_saved_model(trial, retrieved, "CACHE-14", "CACHE-15", "files at offset 1")


def _save_and_retrieve(trial: CacheRoundTrip) -> RetrievedModel:
    trial.save_to_files()
    with trial.open_files() as files:
        retrieved = trial.retrieve(files, fallback=True)
    if not trial.needs_files:
        trial.expect_refused("CACHE-10", retrieved, "a device without cache files")
    return retrieved


def _expect_saved_model(
    trial: CacheRoundTrip, retrieved: RetrievedModel, found_check: str, execution_check: str, situation: str
) -> None:
    """Expect a model that executes as the original does.

    Raises:
        Skipped: X6: nothing was saved.
    """
    if retrieved.is_refused:
        raise Skipped("X6", f"nothing was saved: {retrieved}")
    succeeded = not retrieved.outcome.status and bool(retrieved.model)
    trial.recorder.expect(
        succeeded, f"prepareModelFromCache, {situation}", "NONE and a model", retrieved, check=found_check
    )
    trial.check_execution(execution_check, retrieved.model, "a model from the cache")
