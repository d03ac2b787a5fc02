"""Saving and retrieving with the right files (CACHE-01 to -07, -10 to -15)."""

from tools.conformance.caching.models import mobilenet
from tools.conformance.caching.trial import Retrieved, Trial, counted_against, files_needed, on_models
from tools.conformance.check import Judge, Skipped
from tools.conformance.registry import check
from tools.conformance.target import Target


@check("CACHE-01")
def needed_files_can_be_asked(target: Target, judge: Judge) -> None:
    """CACHE-02 and -03 with it."""
    files_needed(target, judge)


@check("CACHE-02")
def model_files_are_not_negative(target: Target, judge: Judge) -> None:
    """The number of model cache files."""
    files_needed(target, judge)


@check("CACHE-03")
def data_files_are_not_negative(target: Target, judge: Judge) -> None:
    """The number of data cache files."""
    files_needed(target, judge)


@on_models("CACHE-04", models=mobilenet)
def supported_operations(trial: Trial) -> None:
    """The trial has asked."""


@on_models("CACHE-05", "launch of a save", models=mobilenet)
def launch_of_a_save(trial: Trial) -> None:
    """Right files."""
    trial.save_right()


@on_models("CACHE-06", "callback of a save", models=mobilenet)
def callback_of_a_save(trial: Trial) -> None:
    """Right files, twice into the same."""
    trial.save_right()
    trial.save_right()


@on_models("CACHE-07", "retrieving", models=mobilenet)
def retrieving(trial: Trial) -> None:
    """From files that nothing was saved to, and from such as hold a model."""
    trial.retrieve_right()
    trial.save_right()
    trial.retrieve_right()


@on_models("CACHE-10", "nothing is cached", models=mobilenet)
def nothing_is_cached(trial: Trial) -> None:
    """Only where the device needs no files: retrieving never works, whatever was prepared before."""
    if trial.caching:
        raise Skipped("", "the device caches")
    _saved_and_retrieved(trial)


@on_models("CACHE-11", "plain", models=mobilenet)
def plain(trial: Trial) -> None:
    """CACHE-12 with it."""
    trial.demand_caching()
    retrieved = _saved_and_retrieved(trial)
    _expect_right(trial, retrieved, "CACHE-11", "CACHE-12", "what was saved")


@on_models("CACHE-12", "executed", models=mobilenet)
def executed(trial: Trial) -> None:
    """The model from the cache is all that is left: the one that was saved has been released."""
    trial.demand_caching()
    trial.save_right()
    trial.forget_models()
    retrieved = trial.retrieve_right()
    _expect_right(trial, retrieved, "CACHE-11", "CACHE-12", "what was saved")


@on_models("CACHE-13", "offsets", models=mobilenet)
def offsets(trial: Trial) -> None:
    """CACHE-14 and -15 with it: files stand at offset 2 when they are saved to, at 1 when they are retrieved from."""
    with trial.files() as files:
        for handle in files.all:
            trial.folder.write(handle, bytes(2))
        with counted_against("CACHE-13"):
            trial.save(files, what="files at offset 2")
    trial.judge.checks["CACHE-13"] = None
    trial.forget_models()
    with trial.files() as files:
        for handle in files.all:
            trial.folder.read(handle, 1)
        retrieved = trial.retrieve(files, fallback=True)
    if not trial.caching:
        trial.expect_refused("CACHE-10", retrieved, "nothing is cached")
        return
    _expect_right(trial, retrieved, "CACHE-14", "CACHE-15", "files at offset 1")


def _saved_and_retrieved(trial: Trial) -> Retrieved:
    trial.save_right()
    with trial.files() as files:
        retrieved = trial.retrieve(files, fallback=True)
    if not trial.caching:
        trial.expect_refused("CACHE-10", retrieved, "nothing is cached")
    return retrieved


def _expect_right(trial: Trial, retrieved: Retrieved, found: str, right: str, what: str) -> None:
    """The model is there and executes as the original does.

    Raises:
        Skipped: X6.
    """
    if retrieved.is_refused:
        raise Skipped("X6", f"nothing was saved: {retrieved}")
    fine = not retrieved.answer.status and bool(retrieved.model)
    trial.judge.expect(found, fine, f"prepareModelFromCache, {what}", "NONE and a model", retrieved)
    trial.check_execution(right, retrieved.model, "a model from the cache")
