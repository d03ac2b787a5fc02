"""Wrong numbers of files, and files that are not open for reading and writing (CACHE-16 to -27)."""

from collections.abc import Callable, Sequence

from tools.conformance.caching.files import READ_ONLY, WRITE_ONLY
from tools.conformance.caching.models import mobilenet
from tools.conformance.caching.trial import Trial, counted_against, on_models
from tools.conformance.check import Skipped

Names = tuple[Sequence[str], Sequence[str]]
"""Of model files and of data files."""

Wrong = Callable[[Trial], Names]


def _model_file_too_many(trial: Trial) -> Names:
    return [*trial.model_files, trial.spare], trial.data_files


def _model_file_too_few(trial: Trial) -> Names:
    _demand(trial.model_files, "model")
    return trial.model_files[:-1], trial.data_files


def _data_file_too_many(trial: Trial) -> Names:
    return trial.model_files, [*trial.data_files, trial.spare]


def _data_file_too_few(trial: Trial) -> Names:
    _demand(trial.data_files, "data")
    return trial.model_files, trial.data_files[:-1]


def _demand(names: Sequence[str], kind: str) -> None:
    if not names:
        raise Skipped("X4", f"the device needs no {kind} cache files")


NUMBERS: dict[str, tuple[str, str, Wrong]] = {
    "a model file too many": ("CACHE-16", "CACHE-20", _model_file_too_many),
    "a model file too few": ("CACHE-17", "CACHE-21", _model_file_too_few),
    "a data file too many": ("CACHE-18", "CACHE-22", _data_file_too_many),
    "a data file too few": ("CACHE-19", "CACHE-23", _data_file_too_few),
}
"""Ids of saving and of retrieving with it."""

MODES = {
    "CACHE-24": ("saving", "model", READ_ONLY),
    "CACHE-25": ("saving", "data", READ_ONLY),
    "CACHE-26": ("retrieving", "model", WRITE_ONLY),
    "CACHE-27": ("retrieving", "data", WRITE_ONLY),
}
"""What is done with which files, and how they are open."""


def _save_wrong(trial: Trial, id_: str, what: str, names: Names, modes: dict[str, int] | None = None) -> None:
    """Saving into wrong files prepares all the same; then nothing can be had from them."""
    with trial.folder.opened(*names, modes) as files:
        model = trial.save(files, what=what)
        trial.check_execution(id_, model, f"a model prepared with {what}")
        trial.verify_bad(files, what)


def _retrieve_wrong(trial: Trial, what: str, names: Names, modes: dict[str, int] | None = None) -> None:
    """Saved into the right files, nothing can be had from wrong ones."""
    trial.save_right()
    with trial.folder.opened(*names, modes) as files:
        trial.verify_bad(files, what)


def _register_number(what: str, saving: str, retrieving: str, wrong: Wrong) -> None:
    @on_models(saving, f"saving with {what}", models=mobilenet)
    def save(trial: Trial) -> None:
        with counted_against(saving):
            _save_wrong(trial, saving, what, wrong(trial))

    @on_models(retrieving, f"retrieving with {what}", models=mobilenet)
    def retrieve(trial: Trial) -> None:
        with counted_against(retrieving):
            _retrieve_wrong(trial, what, wrong(trial))
        trial.judge.checks[retrieving] = None


def _register_mode(id_: str, doing: str, kind: str, mode: int) -> None:
    how = "read" if mode == READ_ONLY else "write"

    @on_models(id_, f"{doing}, {how}-only {kind} files", models=mobilenet)
    def in_turn(trial: Trial) -> None:
        names = trial.model_files if kind == "model" else trial.data_files
        _demand(names, kind)
        for number, name in enumerate(names):
            what = f"{kind} file {number} {how}-only"
            arguments = what, (trial.model_files, trial.data_files), {name: mode}
            with counted_against(id_):
                if doing == "saving":
                    _save_wrong(trial, id_, *arguments)
                else:
                    _retrieve_wrong(trial, *arguments)
        trial.judge.checks[id_] = None


for _what, (_saving, _retrieving, _wrong) in NUMBERS.items():
    _register_number(_what, _saving, _retrieving, _wrong)
for _id, (_doing, _kind, _mode) in MODES.items():
    _register_mode(_id, _doing, _kind, _mode)
