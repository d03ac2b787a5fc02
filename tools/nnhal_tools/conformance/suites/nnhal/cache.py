"""Promises for the compilation cache that the contract adds to the HAL (NNHAL-28 to -33)."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Semaphore

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.caching.files import READ_ONLY
from nnhal_tools.conformance.caching.models import mobilenet, ranking_mobilenet
from nnhal_tools.conformance.caching.round_trip import (
    CacheRoundTrip,
    file_cache,
    prepare_and_save,
    prepare_from_cache,
    round_trip_check,
    stored_cache,
)
from nnhal_tools.conformance.check import CheckRecorder, NotServiceSpecific, Skipped
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_request,
    expect_correct,
    prepared_model,
    supported_model,
)

SAVED, NOT_SAVED, HIT, MISS = (
    device_pb2.CACHE_STATE_SAVED,
    device_pb2.CACHE_STATE_NOT_SAVED,
    device_pb2.CACHE_STATE_HIT,
    device_pb2.CACHE_STATE_MISS,
)

NAME = "network"
NOT_SAVED_CODE = "cache-not-saved"

LOW, HIGH = 0, 2

LOW_PRIORITY_COUNT = 24
LOW_PRIORITY_NS = 50_000_000
"""Number of concurrent executions of low priority, and the duration of each."""


class CacheClient:
    """Client of the Cache service for one session. Methods raise NotServiceSpecific if a call fails."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def check(self, cache: types_pb2.CompilationCache) -> device_pb2.CacheOutcome:
        """Call Cache.Check."""
        outcome: device_pb2.CacheOutcome = self._target.require("Cache.Check", cache=cache).outcome
        return outcome

    def tokens(self) -> list[bytes]:
        """Call Cache.List and return the tokens."""
        return [entry.token for entry in self._target.require("Cache.List").entries]

    def damaged_count(self) -> int:
        """Call Cache.List and return how many damaged entries the service has found since it started."""
        return int(self._target.require("Cache.List").counters.set_aside)

    def clear(self, *tokens: bytes) -> int:
        """Call Cache.Clear for these tokens and return the number of removed entries."""
        return int(self._target.require("Cache.Clear", tokens=tokens).removed)


def require_store(target: Target) -> None:
    """Raise Skipped for X4 if the device does not cache."""
    _, needed = target.call("Device.GetNumberOfCacheFilesNeeded")
    if needed is not None and not (needed.num_model_cache or needed.num_data_cache):
        raise Skipped("X4", "the device does not cache")


@contextmanager
def cleared_entry(target: Target) -> Iterator[types_pb2.CompilationCache]:
    """Yield arguments for a new entry in the store, which is cleared at the end; see `require_store`."""
    require_store(target)
    token = secrets.token_bytes(32)
    try:
        yield stored_cache(token)
    finally:
        CacheClient(target).clear(token)


def _expect_state(recorder: CheckRecorder, outcome: PreparationOutcome, state: int, stimulus: str) -> None:
    got = outcome.callbacks[0].cache.state if outcome.callbacks else 0
    name = device_pb2.CacheState.Name(state)  # type: ignore[arg-type]
    recorder.expect(got == state, stimulus, name, f"{outcome.callback}, state {got}")


# ---- Saved models ---------------------------------------------------------------------------------------


def _expect_saved_and_hit(
    recorder: CheckRecorder, target: Target, cache: types_pb2.CompilationCache, storage: str
) -> None:
    saved = prepare_and_save(target, supported_model(target, builtin_case(NAME)), cache)
    _expect_state(recorder, saved, SAVED, f"prepareModel into {storage}")
    target.release(saved.model)
    retrieved = prepare_from_cache(target, cache)
    _expect_state(recorder, retrieved, HIT, f"prepareModelFromCache from {storage}")
    execution = target.execute(retrieved.model, builtin_request(NAME))
    expect_correct(recorder, NAME, execution, f"a model from {storage}")
    target.release(retrieved.model)


@check("NNHAL-28", "store")
def saved_in_store(target: Target, recorder: CheckRecorder) -> None:
    """Check a model that is saved in the service's store."""
    with cleared_entry(target) as cache:
        _expect_saved_and_hit(recorder, target, cache, "the service's store")


@check("NNHAL-28", "files")
def saved_in_files(target: Target, recorder: CheckRecorder) -> None:
    """Check a model that is saved in files of the client."""
    with CacheRoundTrip(target, recorder, builtin_case(NAME)) as trial:
        trial.require_caching()
        with trial.open_files() as files:
            _expect_saved_and_hit(recorder, target, file_cache(secrets.token_bytes(32), files), "files")


@round_trip_check("NNHAL-28", "several backends", models=ranking_mobilenet, kinds=("float32",))
def saved_on_several_backends(trial: CacheRoundTrip) -> None:
    """Check that each backend receives its own part. Skipped if one backend takes the whole model."""
    trial.require_caching()
    with trial.open_files() as files:
        cache = file_cache(secrets.token_bytes(32), files)
        saved = prepare_and_save(trial.target, trial.model, cache)
        retrieved = prepare_from_cache(trial.target, cache)
    if len(set(saved.backends)) < 2:
        raise Skipped("", f"one backend takes the whole model: {set(saved.backends) or 'not reported'}")
    _expect_state(trial.recorder, retrieved, HIT, "prepareModelFromCache of a model on several backends")
    trial.check_execution("NNHAL-28", retrieved.model, "a model from the cache")
    trial.target.release(saved.model, retrieved.model)


@check("NNHAL-33")
def description_of_retrieved_model(target: Target, recorder: CheckRecorder) -> None:
    """Check the description in notify, because a client of a cached model does not have the graph."""
    model = supported_model(target, mobilenet("quant8"))
    with cleared_entry(target) as cache:
        outcomes = prepare_and_save(target, model, cache), prepare_from_cache(target, cache)
        target.release(*(outcome.model for outcome in outcomes if outcome.model))
    original, retrieved = (outcome.callbacks[0] for outcome in outcomes)
    for part in ("placement", "inputs", "outputs"):
        same = getattr(retrieved, part) == getattr(original, part)
        recorder.expect(same, f"{part} of a model from the cache", "equal to the original's", "different")


# ---- Reasons for misses ---------------------------------------------------------------------------------


def _expect_miss(recorder: CheckRecorder, target: Target, cache: types_pb2.CompilationCache, situation: str) -> str:
    """Expect that these arguments are a miss, and return the reason. The callback and Cache.Check must agree."""
    checked = CacheClient(target).check(cache)
    missed = prepare_from_cache(target, cache)
    stimulus = f"prepareModelFromCache, {situation}"
    refused = missed.callback.status == ErrorStatus.GENERAL_FAILURE and not missed.model
    recorder.expect(refused, stimulus, "GENERAL_FAILURE and no model", missed.callback)
    _expect_state(recorder, missed, MISS, stimulus)
    reported = missed.callbacks[0].cache
    recorder.expect(bool(reported.reason), stimulus, "a reason in the outcome of the cache", "none")
    recorder.expect(checked == reported, f"Cache.Check, {situation}", f"MISS: {reported.reason}", checked)
    return str(reported.reason)


@check("NNHAL-29", "no entry")
def no_entry(target: Target, recorder: CheckRecorder) -> None:
    """Check the reason for an unknown token, and Cache.Check of an existing entry."""
    _expect_miss(recorder, target, stored_cache(secrets.token_bytes(32)), "an unknown token")
    with cleared_entry(target) as cache:
        target.release(prepare_and_save(target, supported_model(target, builtin_case(NAME)), cache).model)
        checked = CacheClient(target).check(cache)
        recorder.expect(checked.state == HIT, "Cache.Check of a saved model", "HIT", checked)


@check("NNHAL-29", "files")
def reasons_of_files(target: Target, recorder: CheckRecorder) -> None:
    """Check that each kind of damage to a file has its own reason."""
    with CacheRoundTrip(target, recorder, builtin_case(NAME)) as trial:
        trial.require_caching()
        token, reasons = secrets.token_bytes(32), {}

        def add_reason(situation: str, token: bytes) -> None:
            with trial.open_files() as files:
                reasons[situation] = _expect_miss(recorder, target, file_cache(token, files), situation)

        add_reason("empty files", token)
        trial.save_to_files(token)
        add_reason("another token", secrets.token_bytes(32))
        if trial.model_files:
            name = trial.model_files[0]
            size = trial.folder.size(name)
            trial.folder.flip_bit(name, size * 4)
            add_reason("a model file that was tampered with", token)
            trial.save_to_files(token)
            trial.folder.truncate(name, size // 2)
            add_reason("a model file that was truncated", token)
        distinct = len(set(reasons.values())) == len(reasons)
        recorder.expect(distinct, "reasons for misses", "a different reason for each", reasons)


@check("NNHAL-32")
def not_saved_is_reported(target: Target, recorder: CheckRecorder) -> None:
    """Check that a preparation succeeds without its cache, and reports so."""
    with CacheRoundTrip(target, recorder, builtin_case(NAME)) as trial:
        trial.require_caching()
        names = [*trial.model_files, *trial.data_files]
        wrong_files: dict[str, tuple[list[str], dict[str, int] | None]] = {
            "an extra model file": ([*trial.model_files, trial.spare], None),
            "read-only files": (trial.model_files, {name: READ_ONLY for name in names}),
            "a data file as model file": (trial.data_files[:1] * len(trial.model_files), None),
        }
        for situation, (models, modes) in wrong_files.items():
            with trial.folder.open_files(models, trial.data_files, modes) as files:
                _expect_not_saved(recorder, target, file_cache(bytes(32), files), situation)


def _expect_not_saved(
    recorder: CheckRecorder, target: Target, cache: types_pb2.CompilationCache, situation: str
) -> None:
    outcome = prepare_and_save(target, builtin_case(NAME).model(), cache)
    stimulus = f"prepareModel that saves, {situation}"
    recorder.expect(bool(outcome.model), stimulus, "NONE and a model", outcome.callback)
    _expect_state(recorder, outcome, NOT_SAVED, stimulus)
    notify = outcome.callbacks[0]
    codes = [warning.code for warning in notify.warnings if warning.text]
    warned = NOT_SAVED_CODE in codes and bool(notify.cache.reason)
    recorder.expect(warned, stimulus, f"a warning {NOT_SAVED_CODE} and the reason", f"warnings {codes}")
    target.release(outcome.model)


# ---- The store ------------------------------------------------------------------------------------------


@check("NNHAL-30")
def _list_and_clear(target: Target, recorder: CheckRecorder) -> None:
    caches, model = CacheClient(target), supported_model(target, builtin_case(NAME))
    with cleared_entry(target) as cache, cleared_entry(target) as other:
        before = set(caches.tokens())
        recorder.expect(cache.token not in before, "Cache.List before saving", "no entry", "one")
        for entry in (cache, other):
            target.release(prepare_and_save(target, model, entry).model)
        listed = set(caches.tokens())
        recorder.expect(
            {cache.token, other.token} <= listed, "Cache.List after saving", "both entries", "a missing entry"
        )
        removed = caches.clear(cache.token)
        left = set(caches.tokens()) & {cache.token, other.token}
        cleared = removed == 1 and left == {other.token}
        recorder.expect(cleared, "Cache.Clear of one token", "that entry gone", f"{removed} removed")
        again = prepare_from_cache(target, cache)
        recorder.expect(not again.model, "prepareModelFromCache of a cleared entry", "no model", "a model")


# ---- Priority -------------------------------------------------------------------------------------------


@check("NNHAL-31", exclusive=True)
def priority_is_kept(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution of high priority overtakes waiting ones of low priority.

    Skipped if an execution on the original model of high priority does not overtake them either.
    """
    with target.new_session() as session, cleared_entry(session) as cache:
        saved = prepare_and_save(session, supported_model(session, builtin_case("add_float")), cache, HIGH)
        retrieved = prepare_from_cache(session, cache)
        recorder.expect(bool(retrieved.model), "prepareModelFromCache", "NONE", retrieved.callback)
        low_priority_model = _prepare_low_priority(session, builtin_case("while_without_end"))
        if (before := _count_earlier_executions(session, low_priority_model, saved.model)) > LOW_PRIORITY_COUNT // 2:
            raise Skipped(
                "", f"priority has no effect: {before} of {LOW_PRIORITY_COUNT} executions of low priority came first"
            )
        before = _count_earlier_executions(session, low_priority_model, retrieved.model)
        stimulus = f"an execution on a cached model of high priority, with {LOW_PRIORITY_COUNT} of low priority waiting"
        recorder.expect(
            before <= LOW_PRIORITY_COUNT // 2, stimulus, f"at most {LOW_PRIORITY_COUNT // 2} of them come first", before
        )


def _prepare_low_priority(target: Target, case: Case) -> bytes:
    with prepared_model(target, case.name):
        pass  # Only the preparation gate matters here.
    return prepare_and_save(target, case.model(), types_pb2.CompilationCache(), LOW).model


def _count_earlier_executions(target: Target, low_priority_model: bytes, model: bytes) -> int:
    """Return how many executions of low priority end before an execution on the model."""
    loop, ended, ends = builtin_request("while_without_end"), [], Semaphore(0)

    def execute_low(number: int) -> None:
        try:
            target.execute(low_priority_model, loop, RunOptions(loop_timeout_ns=LOW_PRIORITY_NS))
            ended.append(number)
        finally:
            ends.release()

    with ThreadPoolExecutor(LOW_PRIORITY_COUNT) as threads:
        waiting = [threads.submit(execute_low, number) for number in range(LOW_PRIORITY_COUNT)]
        for _ in range(LOW_PRIORITY_COUNT // 3):  # until then, all calls have arrived
            ends.acquire()
        execution = target.execute(model, builtin_request("add_float"))
        before = len(ended)
    for future in waiting:
        future.result()
    if execution.outcome.status != ErrorStatus.NONE:
        raise NotServiceSpecific(f"an execution of high priority: {execution.outcome}")
    return before
