"""Requirements of the HAL for cache files that the vendor test suite does not cover (EXTRA-21, -25, -26)."""

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.caching.files import CacheHandles
from nnhal_tools.conformance.caching.round_trip import (
    TOKEN,
    CacheRoundTrip,
    file_cache,
    prepare_and_save,
    prepare_from_cache,
    round_trip_check,
)
from nnhal_tools.conformance.check import Skipped

ID = "EXTRA-21"

JUNK = b"\xa5"


@round_trip_check(ID, "truncation by a save", saved=True)
def files_truncated_by_save(trial: CacheRoundTrip) -> None:
    """Check that a save truncates larger files, and that the model can then be retrieved."""
    sizes = {name: trial.folder.size(name) for name in (*trial.model_files, *trial.data_files)}
    if not any(sizes.values()):
        raise Skipped("X6", "nothing was saved")
    for name, size in sizes.items():
        trial.folder.write_file(name, JUNK * (2 * size + 4096))
    trial.save_to_files()
    for name, size in sizes.items():
        got = trial.folder.size(name)
        trial.recorder.expect(
            got < 2 * size + 4096, f"size of {name} after a save", f"fewer than {2 * size + 4096} bytes", f"{got} bytes"
        )
    _expect_retrieved(trial, "after a save into files that were larger")


@round_trip_check(ID, "truncated files")
def truncated_model_files(trial: CacheRoundTrip) -> None:
    """Check that truncated and empty model files are refused."""
    trial.require_caching()
    for name in trial.model_files:
        trial.save_to_files()
        size = trial.folder.size(name)
        for left in (size - 1, size // 2, 1, 0):
            trial.folder.truncate(name, max(left, 0))
            situation = f"{name} truncated to {left} of {size} bytes"
            trial.expect_refused(ID, trial.retrieve_from_files(), situation)


@round_trip_check(ID, "order", saved=True)
def swapped_files(trial: CacheRoundTrip) -> None:
    """Check that model files are refused as data files and vice versa."""
    if not trial.model_files or len(trial.model_files) != len(trial.data_files):
        raise Skipped("", "the numbers of model and data files differ, so they cannot be swapped")
    with trial.folder.open_files(trial.data_files, trial.model_files) as files:
        retrieved = trial.retrieve(files)
    stimulus = "prepareModelFromCache with model and data files swapped"
    trial.recorder.expect(
        bool(retrieved.outcome.status) and not retrieved.model, stimulus, "an error and no model", retrieved
    )


@round_trip_check(ID, "unused token", kinds=("quant8",))
def token_without_files(trial: CacheRoundTrip) -> None:
    """Check that preparing without files succeeds with any token."""
    with trial.folder.open_files([], []) as files:
        for token in (bytes(32), b"short", b""):
            preparation = prepare_and_save(trial.target, trial.model, file_cache(token, files))
            stimulus = f"prepareModel without files, a token of {len(token)} bytes"
            trial.recorder.expect(bool(preparation.model), stimulus, "NONE and a model", preparation.callback)
            trial.target.release(preparation.model)


@round_trip_check(ID, "closed files", saved=True)
def files_closed_after_the_callback(trial: CacheRoundTrip) -> None:
    """Check that a retrieved model still works when its files are closed and empty."""
    retrieved = trial.retrieve_from_files()
    if not retrieved.model:
        raise Skipped("X6", f"nothing was saved: {retrieved}")
    for name in (*trial.model_files, *trial.data_files):
        trial.folder.truncate(name, 0)
    trial.check_execution(ID, retrieved.model, "a model whose cache files were emptied")


@round_trip_check(ID, "tampered with after a retrieval", kinds=("quant8",), saved=True)
def model_files_read_each_time(trial: CacheRoundTrip) -> None:
    """Check that a model file is checked again even if the device has retrieved the model before."""
    if not trial.model_files or not trial.retrieve_from_files().model:
        raise Skipped("X6", "nothing was saved to a model file")
    name = trial.model_files[0]
    trial.folder.flip_bit(name, trial.folder.size(name) * 4)
    situation = f"{name} tampered with after a retrieval"
    trial.expect_refused(ID, trial.retrieve_from_files(), situation)


@round_trip_check(ID, "same file twice", kinds=("quant8",))
def same_file_twice(trial: CacheRoundTrip) -> None:
    """Check that a file that is given twice is refused, since its second content replaces the first one."""
    trial.require_caching()
    names = [*trial.model_files, *trial.data_files]
    if len(names) < 2:
        raise Skipped("", "the device needs a single file")
    first, count = names[0], len(trial.model_files)
    with trial.folder.open_files([first] * count, [first] * (len(names) - count)) as files:
        preparation = prepare_and_save(trial.target, trial.model, file_cache(TOKEN, files))
        trial.recorder.expect(
            bool(preparation.model), "prepareModel with one file twice", "NONE and a model", preparation.callback
        )
        trial.target.release(preparation.model)
        retrieved = trial.retrieve(files)
    refused = retrieved.outcome.status in (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE)
    stimulus, expected = "prepareModelFromCache with one file twice", "INVALID_ARGUMENT or GENERAL_FAILURE, no model"
    trial.recorder.expect(refused and not retrieved.model, stimulus, expected, retrieved)


@round_trip_check("EXTRA-25", saved=True)
def caching_is_not_a_promise_alone(trial: CacheRoundTrip) -> None:
    """Check that a device that needs cache files saves. One that caches nothing must need none."""
    stimulus = f"prepareModelFromCache of a device that needs {len(trial.model_files)} + {len(trial.data_files)} files"
    retrieved = trial.retrieve_from_files()
    trial.recorder.expect(bool(retrieved.model), stimulus, "NONE and a model", retrieved)


@round_trip_check("EXTRA-26", kinds=("quant8",), saved=True)
def rejected_at_launch(trial: CacheRoundTrip) -> None:
    """Check that the launch and the callback reject what must not be retrieved, with the same status."""
    if not trial.retrieve_from_files().model:
        raise Skipped("X6", "nothing was saved")
    with trial.open_files() as files:
        _expect_rejected_at_launch(trial, files, bytes([1]) * len(TOKEN), "another token")
    if trial.model_files:
        name = trial.model_files[0]
        trial.folder.flip_bit(name, trial.folder.size(name) * 4)
        with trial.open_files() as files:
            _expect_rejected_at_launch(trial, files, TOKEN, f"{name} tampered with")
        trial.folder.truncate(name, 0)
        with trial.open_files() as files:
            _expect_rejected_at_launch(trial, files, TOKEN, f"{name} empty")


def _expect_rejected_at_launch(trial: CacheRoundTrip, files: CacheHandles, token: bytes, situation: str) -> None:
    outcome = prepare_from_cache(trial.target, file_cache(token, files))
    failures = {outcome.launch.status, outcome.callback.status}
    right = failures == {ErrorStatus.GENERAL_FAILURE} and "launched" not in outcome.events and not outcome.model
    got = f"{outcome.events}, {outcome.got}"
    expected = "GENERAL_FAILURE in the callback and at launch, and no `launched`"
    trial.recorder.expect(right, f"prepareModelFromCache, {situation}", expected, got)


def _expect_retrieved(trial: CacheRoundTrip, situation: str) -> None:
    retrieved = trial.retrieve_from_files()
    trial.recorder.expect(bool(retrieved.model), f"prepareModelFromCache {situation}", "NONE and a model", retrieved)
    trial.check_execution(ID, retrieved.model, f"a model {situation}")
