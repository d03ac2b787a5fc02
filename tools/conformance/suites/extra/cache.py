"""Cache files, as the HAL has them and the vendor test suite does not look at them (EXTRA-21)."""

from tools.conformance.caching.models import mobilenet
from tools.conformance.caching.trial import Trial, in_files, on_models, prepare_into
from tools.conformance.check import Skipped

ID = "EXTRA-21"

JUNK = b"\xa5"


@on_models(ID, "truncation", models=mobilenet)
def truncated_before_writing(trial: Trial) -> None:
    """Files that were larger hold nothing of what was in them, and the model comes back."""
    trial.demand_caching()
    trial.save_right()
    sizes = {name: trial.folder.size(name) for name in (*trial.model_files, *trial.data_files)}
    if not any(sizes.values()):
        raise Skipped("X6", "nothing was saved")
    for name, size in sizes.items():
        trial.folder.put(name, JUNK * (2 * size + 4096))
    trial.save_right()
    for name, size in sizes.items():
        got = trial.folder.size(name)
        trial.judge.expect(ID, got < 2 * size + 4096, f"size of {name} after a save", "what was saved", f"{got} bytes")
    _expect_retrieved(trial, "after a save into files that were larger")


@on_models(ID, "emptied", models=mobilenet)
def emptied_and_cut_off(trial: Trial) -> None:
    """A model file that lost its end, or everything."""
    trial.demand_caching()
    for name in trial.model_files:
        trial.save_right()
        size = trial.folder.size(name)
        for left in (size - 1, size // 2, 1, 0):
            trial.folder.truncate(name, max(left, 0))
            what = f"{name} cut off at {left} of {size} bytes"
            trial.expect_refused(ID, trial.retrieve_right(), what)


@on_models(ID, "order", models=mobilenet)
def files_in_another_order(trial: Trial) -> None:
    """Files are told apart by their place: model files in place of data files are refused."""
    trial.demand_caching()
    if not trial.model_files or len(trial.model_files) != len(trial.data_files):
        raise Skipped("", "model files cannot stand for data files: there are not as many")
    trial.save_right()
    with trial.folder.opened(trial.data_files, trial.model_files) as files:
        retrieved = trial.retrieve(files)
    what = "prepareModelFromCache with model and data files changed round"
    trial.judge.expect(ID, bool(retrieved.answer.status) and not retrieved.model, what, "an error, no model", retrieved)


@on_models(ID, "unused token", models=mobilenet, kinds=("quant8",))
def token_without_files(trial: Trial) -> None:
    """Without files nothing is saved, and the token means nothing."""
    with trial.folder.opened([], []) as files:
        for token in (bytes(32), b"short", b""):
            prepared = prepare_into(trial.target, trial.model, in_files(token, files))
            what = f"prepareModel without files, a token of {len(token)} bytes"
            trial.judge.expect(ID, bool(prepared.model), what, "NONE and a model", prepared.callback)
            trial.target.release(prepared.model)


@on_models(ID, "closed files", models=mobilenet)
def files_closed_after_the_callback(trial: Trial) -> None:
    """Whoever gave the files closes, empties and deletes them; the model goes on."""
    trial.demand_caching()
    trial.save_right()
    retrieved = trial.retrieve_right()
    if not retrieved.model:
        raise Skipped("X6", f"nothing was saved: {retrieved}")
    for name in (*trial.model_files, *trial.data_files):
        trial.folder.truncate(name, 0)
    trial.check_execution(ID, retrieved.model, "a model whose cache files are empty now")


def _expect_retrieved(trial: Trial, what: str) -> None:
    retrieved = trial.retrieve_right()
    trial.judge.expect(ID, bool(retrieved.model), f"prepareModelFromCache {what}", "NONE and a model", retrieved)
    trial.check_execution(ID, retrieved.model, f"a model {what}")
