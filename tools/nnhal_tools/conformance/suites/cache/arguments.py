"""Wrong numbers of cache files, and files that are not open for reading and writing (CACHE-16 to -27)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nnhal_tools.conformance.caching.files import READ_ONLY, WRITE_ONLY, CacheHandles
from nnhal_tools.conformance.caching.round_trip import CacheRoundTrip, round_trip_check
from nnhal_tools.conformance.check import NotServiceSpecific, Skipped, attribute_failures

FileNames = tuple[Sequence[str], Sequence[str]]
"""Names of model files and of data files."""

WrongFiles = Callable[[CacheRoundTrip], FileNames]


def _needed(names: Sequence[str], kind: str) -> Sequence[str]:
    """Return names of files. Raise Skipped for X4 if there are none."""
    if not names:
        raise Skipped("X4", f"the device needs no {kind} cache files")
    return names


WRONG_NUMBERS: dict[str, tuple[str, str, WrongFiles]] = {
    "an extra model file": ("CACHE-16", "CACHE-20", lambda t: ([*t.model_files, t.spare], t.data_files)),
    "a missing model file": (
        "CACHE-17",
        "CACHE-21",
        lambda t: (_needed(t.model_files, "model")[:-1], t.data_files),
    ),
    "an extra data file": ("CACHE-18", "CACHE-22", lambda t: (t.model_files, [*t.data_files, t.spare])),
    "a missing data file": ("CACHE-19", "CACHE-23", lambda t: (t.model_files, _needed(t.data_files, "data")[:-1])),
}
"""Check ids of saving and of retrieving, and the wrong files, by situation."""

WRONG_MODES = {
    "CACHE-24": ("saving", "model", READ_ONLY),
    "CACHE-25": ("saving", "data", READ_ONLY),
    "CACHE-26": ("retrieving", "model", WRITE_ONLY),
    "CACHE-27": ("retrieving", "data", WRITE_ONLY),
}
"""Action, kind of the affected files, and their access mode, by check id."""


@contextmanager
def _open_files(trial: CacheRoundTrip, names: FileNames, modes: dict[str, int] | None) -> Iterator[CacheHandles]:
    """Open files within the context. A service whose device needs none may refuse to store any.

    Raises:
        Skipped: X4.
    """
    with ExitStack() as stack:
        try:
            files = stack.enter_context(trial.folder.open_files(*names, modes))
        except NotServiceSpecific as error:
            if trial.needs_files:
                raise
            raise Skipped("X4", f"the device needs no cache files, and the service stores none: {error}") from None
        yield files


def _save_with_wrong_files(
    trial: CacheRoundTrip, id_: str, situation: str, names: FileNames, modes: dict[str, int] | None = None
) -> None:
    """Check that a save with wrong files still prepares the model, and that nothing can be retrieved from them."""
    with _open_files(trial, names, modes) as files:
        model = trial.save(files, situation=situation)
        trial.check_execution(id_, model, f"a model prepared with {situation}")
        trial.expect_unusable(files, situation)


def _retrieve_with_wrong_files(
    trial: CacheRoundTrip, situation: str, names: FileNames, modes: dict[str, int] | None = None
) -> None:
    """Check that nothing can be retrieved with wrong files after a save with the right ones."""
    trial.save_to_files()
    with _open_files(trial, names, modes) as files:
        trial.expect_unusable(files, situation)


def _register_number(situation: str, saving: str, retrieving: str, wrong_files: WrongFiles) -> None:
    @round_trip_check(saving, f"saving with {situation}")
    def save(trial: CacheRoundTrip) -> None:
        with attribute_failures(saving):
            _save_with_wrong_files(trial, saving, situation, wrong_files(trial))

    @round_trip_check(retrieving, f"retrieving with {situation}")
    def retrieve(trial: CacheRoundTrip) -> None:
        with attribute_failures(retrieving):
            _retrieve_with_wrong_files(trial, situation, wrong_files(trial))
        trial.recorder.mark(retrieving)


def _register_mode(id_: str, action: str, kind: str, mode: int) -> None:
    access = "read" if mode == READ_ONLY else "write"

    @round_trip_check(id_, f"{action}, {access}-only {kind} files")
    def each_file(trial: CacheRoundTrip) -> None:
        names = trial.model_files if kind == "model" else trial.data_files
        for number, name in enumerate(_needed(names, kind)):
            situation = f"{kind} file {number} {access}-only"
            arguments = situation, (trial.model_files, trial.data_files), {name: mode}
            with attribute_failures(id_):
                if action == "saving":
                    _save_with_wrong_files(trial, id_, *arguments)
                else:
                    _retrieve_with_wrong_files(trial, *arguments)
        trial.recorder.mark(id_)


for _situation, (_saving, _retrieving, _wrong_files) in WRONG_NUMBERS.items():
    _register_number(_situation, _saving, _retrieving, _wrong_files)
for _id, (_action, _kind, _mode) in WRONG_MODES.items():
    _register_mode(_id, _action, _kind, _mode)
