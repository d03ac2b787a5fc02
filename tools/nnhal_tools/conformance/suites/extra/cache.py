"""Requirements of the HAL for cache files that the vendor test suite does not cover (EXTRA-21)."""

from nnhal_tools.conformance.caching.models import mobilenet
from nnhal_tools.conformance.caching.round_trip import CacheRoundTrip, file_cache, prepare_and_save, round_trip_check
from nnhal_tools.conformance.check import Skipped

ID = "EXTRA-21"

JUNK = b"\xa5"


@round_trip_check(ID, "truncation by a save", models=mobilenet)
def files_truncated_by_save(trial: CacheRoundTrip) -> None:
    """Check that a save truncates larger files, and that the model can then be retrieved."""
    trial.require_caching()
    trial.save_to_files()
    sizes = {name: trial.folder.size(name) for name in (*trial.model_files, *trial.data_files)}
    if not any(sizes.values()):
        raise Skipped("X6", "nothing was saved")
    for name, size in sizes.items():
        trial.folder.write_file(name, JUNK * (2 * size + 4096))
    trial.save_to_files()
    for name, size in sizes.items():
        got = trial.folder.size(name)
        trial.recorder.expect(
            ID,
            got < 2 * size + 4096,
            f"size of {name} after a save",
            f"fewer than {2 * size + 4096} bytes",
            f"{got} bytes",
        )
    _expect_retrieved(trial, "after a save into files that were larger")


@round_trip_check(ID, "truncated files", models=mobilenet)
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


@round_trip_check(ID, "order", models=mobilenet)
def swapped_files(trial: CacheRoundTrip) -> None:
    """Check that model files are refused as data files and vice versa."""
    trial.require_caching()
    if not trial.model_files or len(trial.model_files) != len(trial.data_files):
        raise Skipped("", "the numbers of model and data files differ, so they cannot be swapped")
    trial.save_to_files()
    with trial.folder.open_files(trial.data_files, trial.model_files) as files:
        retrieved = trial.retrieve(files)
    stimulus = "prepareModelFromCache with model and data files swapped"
    trial.recorder.expect(
        ID, bool(retrieved.outcome.status) and not retrieved.model, stimulus, "an error and no model", retrieved
    )


@round_trip_check(ID, "unused token", models=mobilenet, kinds=("quant8",))
def token_without_files(trial: CacheRoundTrip) -> None:
    """Check that preparing without files succeeds with any token."""
    with trial.folder.open_files([], []) as files:
        for token in (bytes(32), b"short", b""):
            preparation = prepare_and_save(trial.target, trial.model, file_cache(token, files))
            stimulus = f"prepareModel without files, a token of {len(token)} bytes"
            trial.recorder.expect(ID, bool(preparation.model), stimulus, "NONE and a model", preparation.callback)
            trial.target.release(preparation.model)


@round_trip_check(ID, "closed files", models=mobilenet)
def files_closed_after_the_callback(trial: CacheRoundTrip) -> None:
    """Check that a retrieved model still works when its files are closed and empty."""
    trial.require_caching()
    trial.save_to_files()
    retrieved = trial.retrieve_from_files()
    if not retrieved.model:
        raise Skipped("X6", f"nothing was saved: {retrieved}")
    for name in (*trial.model_files, *trial.data_files):
        trial.folder.truncate(name, 0)
    trial.check_execution(ID, retrieved.model, "a model whose cache files were emptied")


def _expect_retrieved(trial: CacheRoundTrip, situation: str) -> None:
    retrieved = trial.retrieve_from_files()
    trial.recorder.expect(
        ID, bool(retrieved.model), f"prepareModelFromCache {situation}", "NONE and a model", retrieved
    )
    trial.check_execution(ID, retrieved.model, f"a model {situation}")
