"""What the contract promises of the compilation cache beyond the HAL (NNHAL-28 to -33)."""

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import cache_pb2, cache_pb2_grpc, device_pb2, types_pb2
from tools.conformance.caching.files import READ_ONLY
from tools.conformance.caching.models import mobilenet, ranking
from tools.conformance.caching.trial import Trial, in_files, in_store, on_models, prepare_from, prepare_into
from tools.conformance.check import Judge, NotServiceSpecific, Skipped
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, prepared, request_of, taken
from tools.conformance.target import Answer, Prepared, Run, Target, called
from tools.conformance.vectors import Case

SAVED, NOT_SAVED, HIT, MISS = (
    device_pb2.CACHE_STATE_SAVED,
    device_pb2.CACHE_STATE_NOT_SAVED,
    device_pb2.CACHE_STATE_HIT,
    device_pb2.CACHE_STATE_MISS,
)

NAME = "network"
NOT_SAVED_CODE = "cache-not-saved"

LOW, HIGH = 0, 2

CROWD = 24
TURN_NS = 50_000_000
"""Executions of low priority that wait together, and how long each of them takes."""


class Caches:
    """The Cache service, for one session. Methods raise NotServiceSpecific where a call fails."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stub = cache_pb2_grpc.CacheStub(target.channel)

    def check(self, cache: types_pb2.CompilationCache) -> device_pb2.CacheOutcome:
        """Cache.Check."""
        request = cache_pb2.CheckCacheRequest(session=self._target.session, device=self._target.name, cache=cache)
        answer, response = called(self._stub.Check, request)
        outcome: device_pb2.CacheOutcome = _got("Check", answer, response).outcome
        return outcome

    def tokens(self) -> list[bytes]:
        """Cache.List."""
        answer, response = called(self._stub.List, cache_pb2.ListCacheRequest(session=self._target.session))
        return [entry.token for entry in _got("List", answer, response).entries]

    def clear(self, *tokens: bytes) -> int:
        """Cache.Clear of these; gives how many there were."""
        request = cache_pb2.ClearCacheRequest(session=self._target.session, tokens=tokens)
        answer, response = called(self._stub.Clear, request)
        return int(_got("Clear", answer, response).removed)


def _got(method: str, answer: Answer, response: Any) -> Any:
    if response is None:
        raise NotServiceSpecific(f"Cache.{method}: {answer}")
    return response


@contextmanager
def stored(target: Target) -> Iterator[types_pb2.CompilationCache]:
    """A place in the service's store that nobody else has; its entry is cleared in the end."""
    token = secrets.token_bytes(32)
    try:
        yield in_store(token)
    finally:
        Caches(target).clear(token)


def _state(judge: Judge, id_: str, outcome: Prepared, state: int, what: str) -> None:
    got = outcome.callbacks[0].cache.state if outcome.callbacks else 0
    name = device_pb2.CacheState.Name(state)  # type: ignore[arg-type]
    judge.expect(id_, got == state, what, name, f"{outcome.callback}, state {got}")


# ---- What is saved comes back ---------------------------------------------------------------------------


def _expect_saved_and_hit(judge: Judge, target: Target, cache: types_pb2.CompilationCache, what: str) -> None:
    saved = prepare_into(target, taken(target, named(NAME)).model(), cache)
    _state(judge, "NNHAL-28", saved, SAVED, f"prepareModel into {what}")
    target.release(saved.model)
    found = prepare_from(target, cache)
    _state(judge, "NNHAL-28", found, HIT, f"prepareModelFromCache from {what}")
    executed = target.execute(found.model, request_of(NAME))
    expect_right(judge, "NNHAL-28", NAME, executed, f"a model from {what}")
    target.release(found.model)


@check("NNHAL-28", "store")
def store_keeps(target: Target, judge: Judge) -> None:
    """The service keeps the files."""
    with stored(target) as cache:
        _expect_saved_and_hit(judge, target, cache, "the service's store")


@check("NNHAL-28", "files")
def files_keep(target: Target, judge: Judge) -> None:
    """The client does."""
    with Trial(target, judge, named(NAME)) as trial, trial.files() as files:
        _expect_saved_and_hit(judge, target, in_files(secrets.token_bytes(32), files), "files")


@on_models("NNHAL-28", "several backends", models=ranking, kinds=("float32",))
def several_backends_keep(trial: Trial) -> None:
    """Each gets its own part back; where one takes the whole model, nobody can mistake it."""
    trial.demand_caching()
    with trial.files() as files:
        cache = in_files(secrets.token_bytes(32), files)
        saved = prepare_into(trial.target, trial.model, cache)
        found = prepare_from(trial.target, cache)
    if len(set(saved.backends)) < 2:
        raise Skipped("", f"one backend takes the whole model: {set(saved.backends) or 'it is not told'}")
    _state(trial.judge, "NNHAL-28", found, HIT, "prepareModelFromCache of a model on several backends")
    trial.check_execution("NNHAL-28", found.model, "a model from the cache")
    trial.target.release(saved.model, found.model)


@check("NNHAL-33")
def described_as_the_original(target: Target, judge: Judge) -> None:
    """The graph is not there; what notify says is all that a client knows."""
    model = taken(target, mobilenet("quant8")).model()
    with stored(target) as cache:
        outcomes = prepare_into(target, model, cache), prepare_from(target, cache)
        target.release(*(outcome.model for outcome in outcomes if outcome.model))
    original, found = (outcome.callbacks[0] for outcome in outcomes)
    for part in ("placement", "inputs", "outputs"):
        same = getattr(found, part) == getattr(original, part)
        judge.expect("NNHAL-33", same, f"{part} of a model from the cache", "those of the original", "others")


# ---- What does not, says why ----------------------------------------------------------------------------


def _reason(judge: Judge, target: Target, cache: types_pb2.CompilationCache, what: str) -> str:
    """Why these arguments are a miss, which the callback and Cache.Check agree on."""
    asked = Caches(target).check(cache)
    missed = prepare_from(target, cache)
    stimulus = f"prepareModelFromCache, {what}"
    refused = missed.callback.status == ErrorStatus.GENERAL_FAILURE and not missed.model
    judge.expect("NNHAL-29", refused, stimulus, "GENERAL_FAILURE and no model", missed.callback)
    _state(judge, "NNHAL-29", missed, MISS, stimulus)
    told = missed.callbacks[0].cache
    judge.expect("NNHAL-29", bool(told.reason), stimulus, "a reason in the outcome of the cache", "none")
    judge.expect("NNHAL-29", asked == told, f"Cache.Check, {what}", f"MISS: {told.reason}", asked)
    return str(told.reason)


@check("NNHAL-29", "no entry")
def no_entry(target: Target, judge: Judge) -> None:
    """A token that nobody saved with; and one that is there, of which Cache.Check says so."""
    _reason(judge, target, in_store(secrets.token_bytes(32)), "a token that nobody saved with")
    with stored(target) as cache:
        target.release(prepare_into(target, taken(target, named(NAME)).model(), cache).model)
        asked = Caches(target).check(cache)
        judge.expect("NNHAL-29", asked.state == HIT, "Cache.Check of what was saved", "HIT", asked)


@check("NNHAL-29", "files")
def reasons_of_files(target: Target, judge: Judge) -> None:
    """What is wrong with a file can be told from what is wrong with another."""
    with Trial(target, judge, named(NAME)) as trial:
        trial.demand_caching()
        token, reasons = secrets.token_bytes(32), {}

        def why(what: str, token: bytes) -> None:
            with trial.files() as files:
                reasons[what] = _reason(judge, target, in_files(token, files), what)

        why("empty files", token)
        trial.save_right(token)
        why("another token", secrets.token_bytes(32))
        if trial.model_files:
            name = trial.model_files[0]
            size = trial.folder.size(name)
            trial.folder.flip(name, size * 4)
            why("a model file that was tampered with", token)
            trial.save_right(token)
            trial.folder.truncate(name, size // 2)
            why("a model file that was truncated", token)
        distinct = len(set(reasons.values())) == len(reasons)
        judge.expect("NNHAL-29", distinct, "reasons for misses", "one of its own for each", reasons)


@check("NNHAL-32")
def not_saved_is_told(target: Target, judge: Judge) -> None:
    """A preparation goes on without its cache, but not in silence."""
    with Trial(target, judge, named(NAME)) as trial:
        trial.demand_caching()
        names = [*trial.model_files, *trial.data_files]
        ways: dict[str, tuple[list[str], dict[str, int] | None]] = {
            "a model file too many": ([*trial.model_files, trial.spare], None),
            "files that are read-only": (trial.model_files, {name: READ_ONLY for name in names}),
        }
        for what, (models, modes) in ways.items():
            with trial.folder.opened(models, trial.data_files, modes) as files:
                _expect_not_saved(judge, target, in_files(bytes(32), files), what)


def _expect_not_saved(judge: Judge, target: Target, cache: types_pb2.CompilationCache, what: str) -> None:
    outcome = prepare_into(target, named(NAME).model(), cache)
    stimulus = f"prepareModel that saves, {what}"
    judge.expect("NNHAL-32", bool(outcome.model), stimulus, "NONE and a model", outcome.callback)
    _state(judge, "NNHAL-32", outcome, NOT_SAVED, stimulus)
    notify = outcome.callbacks[0]
    codes = [warning.code for warning in notify.warnings if warning.text]
    told = NOT_SAVED_CODE in codes and bool(notify.cache.reason)
    judge.expect("NNHAL-32", told, stimulus, f"a warning {NOT_SAVED_CODE} and the reason", f"warnings {codes}")
    target.release(outcome.model)


# ---- The store ------------------------------------------------------------------------------------------


@check("NNHAL-30")
def list_and_clear(target: Target, judge: Judge) -> None:
    """An entry is listed from when it is saved to when it is cleared; clearing it leaves others."""
    caches, model = Caches(target), taken(target, named(NAME)).model()
    with stored(target) as cache, stored(target) as other:
        before = set(caches.tokens())
        judge.expect("NNHAL-30", cache.token not in before, "Cache.List before saving", "no entry", "one")
        for one in (cache, other):
            target.release(prepare_into(target, model, one).model)
        listed = set(caches.tokens())
        judge.expect("NNHAL-30", {cache.token, other.token} <= listed, "Cache.List after saving", "entries", "none")
        removed = caches.clear(cache.token)
        left = set(caches.tokens()) & {cache.token, other.token}
        right = removed == 1 and left == {other.token}
        judge.expect("NNHAL-30", right, "Cache.Clear of one token", "that entry gone", f"{removed} removed")
        again = prepare_from(target, cache)
        judge.expect("NNHAL-30", not again.model, "prepareModelFromCache of what was cleared", "no model", "a model")


# ---- Priority -------------------------------------------------------------------------------------------


@check("NNHAL-31", alone=True)
def priority_is_kept(target: Target, judge: Judge) -> None:
    """It shows where executions wait: one of high priority overtakes a crowd of low priority.

    Skipped where one of high priority that comes from no cache does not overtake them either.
    """
    with target.another() as session, stored(session) as cache:
        saved = prepare_into(session, taken(session, named("add_float")).model(), cache, HIGH)
        found = prepare_from(session, cache)
        judge.expect("NNHAL-31", bool(found.model), "prepareModelFromCache", "NONE", found.callback)
        crowd = _prepared_low(session, named("while_without_end"))
        if (before := _waited_for(session, crowd, saved.model)) > CROWD // 2:
            raise Skipped("", f"priority does not show: {before} of {CROWD} executions of low priority came first")
        before = _waited_for(session, crowd, found.model)
        what = f"an execution beside {CROWD} of low priority, on a model of high priority from the cache"
        judge.expect("NNHAL-31", before <= CROWD // 2, what, f"at most {CROWD // 2} of them come first", before)


def _prepared_low(target: Target, case: Case) -> bytes:
    with prepared(target, case.name):  # the gate, once
        pass
    return prepare_into(target, case.model(), types_pb2.CompilationCache(), LOW).model


def _waited_for(target: Target, crowd: bytes, model: bytes) -> int:
    """How many executions of the crowd end before one on the model does."""
    loop, ended = request_of("while_without_end"), []

    def one(number: int) -> None:
        target.execute(crowd, loop, Run(loop_timeout_ns=TURN_NS))
        ended.append(number)

    with ThreadPoolExecutor(CROWD) as threads:
        waiting = [threads.submit(one, number) for number in range(CROWD)]
        time.sleep(2 * TURN_NS / 1e9)  # they are all on their way, and two turns are over
        executed = target.execute(model, request_of("add_float"))
        before = len(ended)
    for future in waiting:
        future.result()
    if executed.answer.status != ErrorStatus.NONE:
        raise NotServiceSpecific(f"an execution of high priority: {executed.answer}")
    return before
