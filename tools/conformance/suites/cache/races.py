"""Files that another writes to, and files of another model (CACHE-28 to -31): what comes back is right or refused.

MUL is saved with one token into model files of its own, ADD with another into the normal ones; both use the same data
files. Then the model files of MUL are copied over those of ADD, from the start and without truncation. What comes back
runs on one path only: one execution tells ADD from MUL.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nnhal.types import ErrorStatus
from tools.conformance.caching.models import chain
from tools.conformance.caching.trial import TOKEN, Retrieved, Trial, counted_against, in_files, on_models, prepare_into
from tools.conformance.check import NotServiceSpecific
from tools.conformance.samples import taken
from tools.conformance.vectors import Case

ROUNDS = 100
COPIES = 8
"""The most that one round makes."""

ADD_TOKEN = bytes([1, *TOKEN[1:]])


def _add(kind: str) -> Case:
    return chain("ADD", kind)


def _saved_mul(trial: Trial) -> dict[str, bytes]:
    """Saves MUL beside; gives what its model files hold, by the names of those of ADD."""
    trial.demand_caching()
    case = taken(trial.target, chain("MUL", "quant8" if "quant8" in trial.case.name else "float32"))
    names = [f"{name}_mul" for name in trial.model_files]
    with trial.folder.opened(names, trial.data_files) as files:
        prepared = prepare_into(trial.target, case.model(), in_files(TOKEN, files))
    trial.judge.expect("CACHE-06", bool(prepared.model), "saving MUL", "NONE and a model", prepared.callback)
    trial.target.release(prepared.model)
    return {name: trial.folder.content(mul) for name, mul in zip(trial.model_files, names, strict=True)}


@contextmanager
def _copying(trial: Trial, contents: dict[str, bytes], times: int) -> Iterator[None]:
    """Another thread copies meanwhile, some times over."""
    failures: list[NotServiceSpecific] = []

    def work() -> None:
        try:
            _copy(trial, contents, times)
        except NotServiceSpecific as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


def _copy(trial: Trial, contents: dict[str, bytes], times: int = 1) -> None:
    with trial.folder.opened(list(contents), []) as files:
        for _ in range(times):
            for handle, content in zip(files.model, contents.values(), strict=True):
                trial.folder.seek(handle, 0)
                trial.folder.write(handle, content)


def _expect_add_or_nothing(trial: Trial, id_: str, retrieved: Retrieved) -> None:
    """Any status will do; no model but with NONE, and then it is ADD."""
    is_none = retrieved.answer.status == ErrorStatus.NONE
    what = "prepareModelFromCache while model files are overwritten"
    trial.judge.expect(id_, is_none == bool(retrieved.model), what, "a model exactly with NONE", retrieved)
    if retrieved.model:
        trial.check_execution(id_, retrieved.model, "a model from the cache", ["SYNC"])
    trial.forget_models()


@on_models("CACHE-28", "saving while another writes", models=_add)
def saving_while_another_writes(trial: Trial) -> None:
    """CACHE-29 with it."""
    contents, rng = _saved_mul(trial), random.Random(28)
    for _ in range(ROUNDS):
        with _copying(trial, contents, rng.randint(1, COPIES)), counted_against("CACHE-28"):
            trial.save_right(ADD_TOKEN)
        trial.judge.checks["CACHE-28"] = None
        _expect_add_or_nothing(trial, "CACHE-29", trial.retrieve_right(ADD_TOKEN))


@on_models("CACHE-29", "what was saved at rest", models=_add)
def what_was_saved_before_another_writes(trial: Trial) -> None:
    """The copy has ended before the save begins, so that the model is there."""
    contents = _saved_mul(trial)
    _copy(trial, contents)
    trial.save_right(ADD_TOKEN)
    _expect_add_or_nothing(trial, "CACHE-29", trial.retrieve_right(ADD_TOKEN))


@on_models("CACHE-30", "retrieving while another writes", models=_add)
def retrieving_while_another_writes(trial: Trial) -> None:
    """The files hold ADD when it begins."""
    contents, rng = _saved_mul(trial), random.Random(30)
    for _ in range(ROUNDS):
        trial.save_right(ADD_TOKEN)
        with _copying(trial, contents, rng.randint(1, COPIES)):
            retrieved = trial.retrieve_right(ADD_TOKEN)
        _expect_add_or_nothing(trial, "CACHE-30", retrieved)


@on_models("CACHE-31", "files of another model", models=_add)
def files_of_another_model(trial: Trial) -> None:
    """A well-formed model cache that belongs to another token."""
    contents = _saved_mul(trial)
    trial.save_right(ADD_TOKEN)
    _copy(trial, contents)
    trial.expect_refused("CACHE-31", trial.retrieve_right(ADD_TOKEN), "model files of another model")
