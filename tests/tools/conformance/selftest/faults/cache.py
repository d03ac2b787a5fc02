"""Faults of compilation caching: files, tokens, retrieved models and cache outcomes."""

import time
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import cache_pb2, device_pb2, session_pb2, types_pb2
from tests.tools.conformance.selftest.fault import OVERLAP_S, fault, invalid_argument, preparation_events
from tests.tools.conformance.selftest.proxy import Hook, InjectedError, ProxyCall

PREPARE = ("Device.PrepareModel", "Device.PrepareModelWithConfig")
FROM_CACHE = "Device.PrepareModelFromCache"
BOTH = (*PREPARE, FROM_CACHE)
NEEDED = "Device.GetNumberOfCacheFilesNeeded"

CHUNK = 500_000

SAVED = "saved"
"""Key of the last saving request in the state of the hooks. The others are stored by token."""

FAILED = int(ErrorStatus.GENERAL_FAILURE)


def cache_of(request: Any) -> types_pb2.CompilationCache:
    """Return the cache arguments of a preparation."""
    cache: types_pb2.CompilationCache = request.config.cache if hasattr(request, "config") else request.cache
    return cache


def remember_saves(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Yield the events of a preparation, and store its request by token if it saves."""
    if cache_of(request).token:
        call.state[cache_of(request).token] = call.state[SAVED] = request
    return iter(call.forward(request))


def retrievals_only(hook: Hook) -> Hook:
    """Return a hook that applies to retrievals. Other preparations pass, and those that save are stored for it."""

    @wraps(hook)
    def either(call: ProxyCall, request: Any) -> Any:
        return hook(call, request) if call.method == FROM_CACHE else remember_saves(call, request)

    return either


def prepare_again(call: ProxyCall, request: Any, **changes: Any) -> Iterator[Any]:
    """Prepare a saved model again from its graph, without a cache."""
    fresh = type(request)()
    fresh.CopyFrom(request)
    fresh.ClearField("cache")
    for name, value in changes.items():
        setattr(fresh, name, value)
    return iter(call.call_device("Device.PrepareModel", fresh))


class PreparationEvents(list[Any]):
    """Events of a preparation. To iterate over `replay()` repeats the launch error, too."""

    def __init__(self, stream: Iterator[Any]) -> None:
        super().__init__()
        self._error: grpc.RpcError | None = None
        try:
            self.extend(stream)
        except grpc.RpcError as error:
            self._error = error

    def replay(self) -> Iterator[Any]:
        """Yield the events, and raise the launch error if there was one."""
        yield from self
        if self._error is not None:
            raise self._error


def collect_events(call: ProxyCall, request: Any) -> PreparationEvents:
    """Return all events of a preparation."""
    return PreparationEvents(iter(call.forward(request)))


def is_miss(events: Sequence[Any]) -> bool:
    """Return whether a preparation ended with GENERAL_FAILURE."""
    return any(event.notify.status == FAILED for event in events)


def release_models(call: ProxyCall, events: Sequence[Any], request: Any) -> None:
    """Release the models of a preparation."""
    handles = [event.notify.prepared_model for event in events if event.notify.prepared_model]
    call.call_device("Session.Release", session_pb2.ReleaseRequest(session=request.session, handles=handles))


# ---- Files --------------------------------------------------------------------------------------------------


@fault("EXTRA-21", on=PREPARE, select=())
def cache_file_not_truncated(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Keep the old content of a cache file after the end of the new content."""
    files = [*cache_of(request).model_cache, *cache_of(request).data_cache]
    before = {file: _content(call, request.session, file) for file in files}
    for event in call.forward(request):
        if event.HasField("notify"):
            for file, content in before.items():
                size = len(_content(call, request.session, file))
                _append(call, request.session, file, content[size:])
        yield event


def _content(call: ProxyCall, session: bytes, file: bytes) -> bytes:
    call.call_device("Cache.Seek", cache_pb2.SeekCacheFileRequest(session=session, file=file))
    content = b""
    while data := call.call_device(
        "Cache.Read", cache_pb2.ReadCacheFileRequest(session=session, file=file, length=CHUNK)
    ).data:
        content += data
    return content


def _append(call: ProxyCall, session: bytes, file: bytes, data: bytes) -> None:
    """Write at the current position of the file."""
    for start in range(0, len(data), CHUNK):
        chunk = data[start : start + CHUNK]
        call.call_device("Cache.Write", cache_pb2.WriteCacheFileRequest(session=session, file=file, data=chunk))


@fault("CACHE-08", "CACHE-16", "CACHE-18", "CACHE-20", "CACHE-22", on=BOTH, select=())
def wrong_number_of_files_accepted(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Ignore superfluous cache files."""
    needed = call.call_device(NEEDED, device_pb2.DeviceRequest(device=request.device))
    del cache_of(request).model_cache[needed.num_model_cache :]
    del cache_of(request).data_cache[needed.num_data_cache :]
    yield from call.forward(request)


@fault("CACHE-08", "CACHE-24", "CACHE-25", on=("Cache.Open",), select=())
def read_only_file_accepted(call: ProxyCall, request: Any) -> Any:
    """Save to a file that was opened read-only."""
    if request.mode == cache_pb2.ACCESS_MODE_READ_ONLY:
        request.mode = cache_pb2.ACCESS_MODE_READ_WRITE
    return call.forward(request)


@fault("CACHE-08", "CACHE-26", "CACHE-27", on=("Cache.Open",), select=())
def write_only_file_accepted(call: ProxyCall, request: Any) -> Any:
    """Retrieve from a file that was opened write-only."""
    if request.mode == cache_pb2.ACCESS_MODE_WRITE_ONLY:
        request.mode = cache_pb2.ACCESS_MODE_READ_WRITE
    return call.forward(request)


@fault("CACHE-05", "CACHE-16", "CACHE-17", on=PREPARE, select=())
def launch_fails_over_wrong_files(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Fail the launch of a preparation that has the wrong number of cache files."""
    needed = call.call_device(NEEDED, device_pb2.DeviceRequest(device=request.device))
    counts = len(cache_of(request).model_cache), len(cache_of(request).data_cache)
    if any(counts) and counts != (needed.num_model_cache, needed.num_data_cache):
        return _refused_at_launch()
    return iter(call.forward(request))


@fault("CACHE-06", "CACHE-24", "NNHAL-32", on=PREPARE, select=())
def callback_fails_over_files_it_cannot_write(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Fail the preparation of a model that cannot be saved."""
    for event in call.forward(request):
        if event.notify.cache.state == device_pb2.CACHE_STATE_NOT_SAVED:
            failure: Any = FAILED
            event.notify.CopyFrom(device_pb2.Notify(status=failure, reason=event.notify.cache.reason))
        yield event


@fault("CACHE-13", on=("Cache.Write", *PREPARE), select=())
def saving_at_an_offset_refused(call: ProxyCall, request: Any) -> Any:
    """Fail the launch of a save if the position of a cache file is not 0."""
    return _at_offset(call, request, "Cache.Write")


@fault("CACHE-14", on=("Cache.Read", FROM_CACHE), select=("CACHE-13*",))
def retrieving_at_an_offset_refused(call: ProxyCall, request: Any) -> Any:
    """Fail the launch of a retrieval if the position of a cache file is not 0."""
    return _at_offset(call, request, "Cache.Read")


def _at_offset(call: ProxyCall, request: Any, moving: str) -> Any:
    if call.method == moving:
        call.state[request.file] = True
        return call.forward(request)
    if any(file in call.state for file in (*cache_of(request).model_cache, *cache_of(request).data_cache)):
        return _refused_at_launch()
    return call.forward(request)


def _refused_at_launch() -> Iterator[Any]:
    status: Any = ErrorStatus.INVALID_ARGUMENT
    yield from preparation_events(device_pb2.Notify(status=status, reason="wrong cache files"))
    raise invalid_argument("wrong cache files")


@fault("CACHE-02", on=(NEEDED,), select=())
def negative_number_of_model_files(call: ProxyCall, request: Any) -> Any:
    """Report -1 as the number of model cache files."""
    return types_pb2.NumberOfCacheFiles(num_model_cache=-1, num_data_cache=1)


@fault("CACHE-03", on=(NEEDED,), select=())
def negative_number_of_data_files(call: ProxyCall, request: Any) -> Any:
    """Report -1 as the number of data cache files."""
    return types_pb2.NumberOfCacheFiles(num_model_cache=1, num_data_cache=-1)


@fault("CACHE-28", on=("Cache.Write", *PREPARE), select=())
def files_in_use_refused(call: ProxyCall, request: Any) -> Any:
    """Fail the launch of a preparation while another client writes to its cache files."""
    writing = ("writing", request.session)
    if call.method == "Cache.Write":
        call.state[writing] = time.monotonic()
    elif time.monotonic() - call.state.get(writing, 0.0) < OVERLAP_S:
        return _refused_at_launch()
    return call.forward(request)


# ---- Retrieved models ---------------------------------------------------------------------------------------


@fault("CACHESEC-01", "CACHESEC-02", "CACHE-31", "EXTRA-21", on=BOTH, select=())
@retrievals_only
def tampered_model_cache_accepted(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Accept any content of a model cache if the token is known."""
    events = collect_events(call, request)
    saved_request = call.state.get(request.cache.token)
    can_repeat = saved_request is not None and is_miss(events)
    yield from prepare_again(call, saved_request) if can_repeat else events.replay()


@fault("CACHE-29", "CACHE-30", on=BOTH, select=("CACHE-28*",))
def another_models_cache_executed(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Return the other model if the model files belong to another model."""
    if call.method != FROM_CACHE:
        call.state.setdefault(("first", request.session), request)
        yield from remember_saves(call, request)
        return
    events = collect_events(call, request)
    yield from prepare_again(call, call.state["first", request.session]) if is_miss(events) else events.replay()


@fault("CACHESEC-05", "NNHAL-29", on=BOTH, select=())
@retrievals_only
def token_compared_by_its_length(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Accept any token of the right length."""
    saved_request = call.state.get(SAVED)
    if saved_request is not None and len(request.cache.token) == len(cache_of(saved_request).token):
        request.cache.token = cache_of(saved_request).token
    yield from call.forward(request)


@fault("CACHE-12", "CACHE-15", on=BOTH, select=("CACHE-13*",))
@retrievals_only
def section_handed_to_the_wrong_backend(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Let a backend read the weights of another backend, which stores them in a different order."""
    events = collect_events(call, request)
    saved_request = call.state.get(request.cache.token)
    if saved_request is None or is_miss(events):
        yield from events.replay()
        return
    release_models(call, events, request)
    changed = type(saved_request)()
    changed.CopyFrom(saved_request)
    for pool in changed.model.pools:
        pool.inline = pool.inline[::-1]
    yield from prepare_again(call, changed)


@fault("NNHAL-31", on=BOTH, select=())
@retrievals_only
def priority_of_a_cached_model_forgotten(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Give a retrieved model the lowest priority, whatever it was saved with."""
    events = collect_events(call, request)
    release_models(call, events, request)
    yield from prepare_again(call, call.state[request.cache.token], priority=0)


@fault("NNHAL-26", on=("Session.Open", *BOTH), select=(), needs=("restart_command",))
def entries_only_in_memory(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Lose all entries of the service's store when the service ends."""
    if call.method == "Session.Open":
        yield from _until_the_service_ends(call, request)
    elif call.method != FROM_CACHE:
        yield from remember_saves(call, request)
    elif request.cache.form == types_pb2.CACHE_FORM_STORED and request.cache.token not in call.state:
        yield from preparation_events(device_pb2.Launched(), _miss("there is no entry for this token"))
    else:
        yield from call.forward(request)


def _until_the_service_ends(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Yield the events of a session, and drop the entries when the service announces its end."""
    for event in call.forward(request):
        if event.HasField("closing"):
            call.state.clear()
        yield event


def _miss(reason: str) -> device_pb2.Notify:
    failure: Any = FAILED
    outcome = device_pb2.CacheOutcome(state=device_pb2.CACHE_STATE_MISS, reason=reason)
    return device_pb2.Notify(status=failure, reason=reason, cache=outcome)


@fault("NNHAL-28", on=(FROM_CACHE,), select=())
def saved_and_never_found(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report every model as saved, and every retrieval as a miss."""
    yield from preparation_events(device_pb2.Launched(), _miss("there is no entry"))


@fault("CACHESEC-03", "CACHESEC-04", "CACHE-08", on=(FROM_CACHE,), select=("CACHE-21*",))
def model_with_a_miss(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Return a model together with the error of a miss."""
    try:
        for event in call.forward(request):
            if event.notify.status:
                event.notify.prepared_model = b"made up"
            yield event
    except grpc.RpcError:
        return  # Drop the launch error too, because checks look at the launch first.


@fault("CACHE-07", on=(FROM_CACHE,), select=())
def miss_without_a_status(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Fail a retrieval that misses without a service-specific error."""
    events = collect_events(call, request)
    if is_miss(events):
        raise InjectedError(grpc.StatusCode.INTERNAL)
    yield from events.replay()


@fault("CACHE-11", on=(FROM_CACHE,), select=())
def retrieved_without_a_model(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report NONE for prepareModelFromCache, but return no model."""
    events = collect_events(call, request)
    release_models(call, events, request)
    for event in events.replay():
        if event.HasField("notify"):
            event.notify.ClearField("prepared_model")
        yield event


@fault("CACHE-09", "CACHE-20", on=BOTH, select=())
def no_preparation_after_wrong_files(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report a wrong file as GENERAL_FAILURE at launch, and reject it in later preparations."""
    files = tuple(cache_of(request).model_cache)
    if call.method != FROM_CACHE:
        if files in call.state:
            failure: Any = ErrorStatus.INVALID_ARGUMENT
            yield from preparation_events(
                device_pb2.Launched(), device_pb2.Notify(status=failure, reason="wrong cache files")
            )
        else:
            yield from call.forward(request)
        return
    try:
        yield from collect_events(call, request).replay()
    except grpc.RpcError:
        call.state[files] = True
        yield from preparation_events(_miss("wrong cache files"))
        raise _general_failure() from None


def _general_failure() -> InjectedError:
    error = invalid_argument("wrong cache files")
    assert error.detail is not None
    error.detail.status = FAILED  # type: ignore[assignment]
    return InjectedError(grpc.StatusCode.INTERNAL, error.detail)


@fault("EXTRA-21", on=BOTH, select=())
@retrievals_only
def model_file_read_once(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Answer a second retrieval with a token from memory, without reading the model file."""
    events = collect_events(call, request)
    known = ("retrieved", bytes(request.cache.token))
    if is_miss(events) and known in call.state:
        yield from prepare_again(call, call.state[request.cache.token])
        return
    call.state[known] = not is_miss(events) or call.state.pop(known, False)
    yield from events.replay()


@fault("EXTRA-21", on=("Cache.Open", *BOTH), select=())
def one_file_for_both_caches(call: ProxyCall, request: Any) -> Any:
    """Retrieve a model from a file that is given twice, whatever it holds."""
    if call.method == "Cache.Open":
        response = call.forward(request)
        call.state[response.file] = request.name
        return response
    return _with_repeated_files(call, request) if call.method == FROM_CACHE else remember_saves(call, request)


def _with_repeated_files(call: ProxyCall, request: Any) -> Iterator[Any]:
    events = collect_events(call, request)
    models, datas = (
        {call.state.get(file) for file in files}
        for files in (cache_of(request).model_cache, cache_of(request).data_cache)
    )
    yield from prepare_again(call, call.state[SAVED]) if models & datas else events.replay()


@fault("NNHAL-32", on=PREPARE, select=())
def unusable_save_reported_as_saved(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report a model as saved that cannot be retrieved, since one file was given twice."""
    files = cache_of(request)
    for event in call.forward(request):
        not_saved = event.notify.cache.state == device_pb2.CACHE_STATE_NOT_SAVED
        if not_saved and len(files.model_cache) == len(files.data_cache):
            event.notify.cache.state = device_pb2.CACHE_STATE_SAVED
        yield event


@fault("EXTRA-25", on=BOTH, select=())
def files_needed_though_nothing_is_cached(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report that cache files are needed, although the cache is off."""
    if call.method == FROM_CACHE:
        return preparation_events(device_pb2.Launched(), _miss("the cache is off"))
    cache_of(request).Clear()
    return iter(call.forward(request))


@fault("EXTRA-26", on=(FROM_CACHE,), select=())
def miss_in_the_callback_alone(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Launch a retrieval that cannot succeed, and report so in the callback alone."""
    events = collect_events(call, request)
    notifies = [event.notify for event in events if event.HasField("notify")]
    yield from preparation_events(device_pb2.Launched(), *notifies)


@fault("CACHE-10", on=(NEEDED, FROM_CACHE), select=())
def retrieved_though_nothing_is_cached(call: ProxyCall, request: Any) -> Any:
    """Report that no cache files are needed, and yet retrieve models."""
    if call.method == NEEDED:
        return types_pb2.NumberOfCacheFiles()
    return preparation_events(device_pb2.Launched(), device_pb2.Notify(prepared_model=b"made up"))


# ---- Cache outcomes -----------------------------------------------------------------------------------------


@fault("NNHAL-29", on=(FROM_CACHE,), select=())
def miss_without_a_reason(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report a miss without a reason."""
    for event in call.forward(request):
        if event.notify.cache.state == device_pb2.CACHE_STATE_MISS:
            event.notify.cache.ClearField("reason")
        yield event


@fault("NNHAL-32", on=PREPARE, select=())
def not_saved_in_silence(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Omit the warning for a model that was not saved."""
    for event in call.forward(request):
        if event.HasField("notify"):
            event.notify.ClearField("warnings")
        yield event


@fault("NNHAL-33", on=(FROM_CACHE,), select=())
def model_from_the_cache_without_its_outputs(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Omit the outputs in the description of a retrieved model."""
    for event in call.forward(request):
        if event.HasField("notify"):
            event.notify.ClearField("outputs")
        yield event


@fault("NNHAL-30", on=("Cache.Clear",), select=())
def cleared_and_still_there(call: ProxyCall, request: Any) -> Any:
    """Report entries as removed by Cache.Clear, but remove none."""
    return cache_pb2.ClearCacheResponse(removed=len(request.tokens))
