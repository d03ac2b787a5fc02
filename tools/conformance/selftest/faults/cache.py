"""Faults of compilation caching: files, tokens, what comes back and what is said of it."""

import time
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import cache_pb2, device_pb2, session_pb2, types_pb2
from tools.conformance.selftest.fault import TOGETHER_S, fault, invalid_argument, preparation
from tools.conformance.selftest.proxy import Call, Hook, Refusal

PREPARE = ("Device.PrepareModel", "Device.PrepareModelWithConfig")
FROM_CACHE = "Device.PrepareModelFromCache"
BOTH = (*PREPARE, FROM_CACHE)
NEEDED = "Device.GetNumberOfCacheFilesNeeded"

CHUNK = 500_000

SAVED = "saved"
"""What a fault keeps: requests that saved, by token; under this name the last of them."""

FAILED = int(ErrorStatus.GENERAL_FAILURE)


def cache_of(request: Any) -> types_pb2.CompilationCache:
    """The cache arguments of a preparation."""
    cache: types_pb2.CompilationCache = request.config.cache if hasattr(request, "config") else request.cache
    return cache


def kept_saves(call: Call, request: Any) -> Iterator[Any]:
    """A preparation as it is, kept by its token if it saves."""
    if cache_of(request).token:
        call.kept[cache_of(request).token] = call.kept[SAVED] = request
    return iter(call.forward(request))


def of_retrievals(hook: Hook) -> Hook:
    """A hook of retrievals alone; preparations pass, and those that save are kept for it."""

    @wraps(hook)
    def either(call: Call, request: Any) -> Any:
        return hook(call, request) if call.method == FROM_CACHE else kept_saves(call, request)

    return either


def again(call: Call, request: Any, **changes: Any) -> Iterator[Any]:
    """Prepares a model that was saved once more, from its graph and without a cache."""
    fresh = type(request)()
    fresh.CopyFrom(request)
    fresh.ClearField("cache")
    for name, value in changes.items():
        setattr(fresh, name, value)
    return iter(call.ask("Device.PrepareModel", fresh))


def notifies(call: Call, request: Any) -> list[Any]:
    """All events of a preparation that the device does not refuse at launch."""
    return list(call.forward(request))


def is_miss(events: Sequence[Any]) -> bool:
    """Whether a preparation ended with GENERAL_FAILURE."""
    return any(event.notify.status == FAILED for event in events)


def forget(call: Call, events: Sequence[Any], request: Any) -> None:
    """Releases what a preparation brought."""
    handles = [event.notify.prepared_model for event in events if event.notify.prepared_model]
    call.ask("Session.Release", session_pb2.ReleaseRequest(session=request.session, handles=handles))


# ---- Files --------------------------------------------------------------------------------------------------


@fault("EXTRA-21", on=PREPARE, select=())
def cache_file_not_truncated(call: Call, request: Any) -> Iterator[Any]:
    """What a cache file held beyond the end of what is saved stays there."""
    files = [*cache_of(request).model_cache, *cache_of(request).data_cache]
    before = {file: _content(call, request.session, file) for file in files}
    for event in call.forward(request):
        if event.HasField("notify"):
            for file, content in before.items():
                size = len(_content(call, request.session, file))
                _append(call, request.session, file, content[size:])
        yield event


def _content(call: Call, session: bytes, file: bytes) -> bytes:
    call.ask("Cache.Seek", cache_pb2.SeekCacheFileRequest(session=session, file=file))
    content = b""
    while data := call.ask("Cache.Read", cache_pb2.ReadCacheFileRequest(session=session, file=file, length=CHUNK)).data:
        content += data
    return content


def _append(call: Call, session: bytes, file: bytes, data: bytes) -> None:
    """Writes where the file was read to."""
    for start in range(0, len(data), CHUNK):
        chunk = data[start : start + CHUNK]
        call.ask("Cache.Write", cache_pb2.WriteCacheFileRequest(session=session, file=file, data=chunk))


@fault("CACHE-08", "CACHE-16", "CACHE-18", "CACHE-20", "CACHE-22", on=BOTH, select=())
def wrong_number_of_files_accepted(call: Call, request: Any) -> Iterator[Any]:
    """Of too many cache files the first are taken."""
    needed = call.ask(NEEDED, device_pb2.DeviceRequest(device=request.device))
    del cache_of(request).model_cache[needed.num_model_cache :]
    del cache_of(request).data_cache[needed.num_data_cache :]
    yield from call.forward(request)


@fault("CACHE-08", "CACHE-24", "CACHE-25", on=("Cache.Open",), select=())
def read_only_file_accepted(call: Call, request: Any) -> Any:
    """A file that is read-only is saved to."""
    if request.mode == cache_pb2.ACCESS_MODE_READ_ONLY:
        request.mode = cache_pb2.ACCESS_MODE_READ_WRITE
    return call.forward(request)


@fault("CACHE-08", "CACHE-26", "CACHE-27", on=("Cache.Open",), select=())
def write_only_file_accepted(call: Call, request: Any) -> Any:
    """A file that is write-only is retrieved from."""
    if request.mode == cache_pb2.ACCESS_MODE_WRITE_ONLY:
        request.mode = cache_pb2.ACCESS_MODE_READ_WRITE
    return call.forward(request)


@fault("CACHE-05", "CACHE-16", "CACHE-17", on=PREPARE, select=())
def launch_fails_over_wrong_files(call: Call, request: Any) -> Iterator[Any]:
    """A preparation with a wrong number of cache files fails at launch."""
    needed = call.ask(NEEDED, device_pb2.DeviceRequest(device=request.device))
    counts = len(cache_of(request).model_cache), len(cache_of(request).data_cache)
    if any(counts) and counts != (needed.num_model_cache, needed.num_data_cache):
        return _refused_at_launch()
    return iter(call.forward(request))


@fault("CACHE-06", "CACHE-24", "NNHAL-32", on=PREPARE, select=())
def callback_fails_over_files_it_cannot_write(call: Call, request: Any) -> Iterator[Any]:
    """A model that cannot be saved is not prepared."""
    for event in call.forward(request):
        if event.notify.cache.state == device_pb2.CACHE_STATE_NOT_SAVED:
            failure: Any = FAILED
            event.notify.CopyFrom(device_pb2.Notify(status=failure, reason=event.notify.cache.reason))
        yield event


@fault("CACHE-13", on=("Cache.Write", *PREPARE), select=())
def saving_at_an_offset_refused(call: Call, request: Any) -> Any:
    """A preparation fails at launch where one of its files does not stand at its beginning."""
    return _at_offset(call, request, "Cache.Write")


@fault("CACHE-14", on=("Cache.Read", FROM_CACHE), select=("CACHE-13*",))
def retrieving_at_an_offset_refused(call: Call, request: Any) -> Any:
    """Nothing is retrieved where one of the files does not stand at its beginning."""
    return _at_offset(call, request, "Cache.Read")


def _at_offset(call: Call, request: Any, moving: str) -> Any:
    if call.method == moving:
        call.kept[request.file] = True
        return call.forward(request)
    if any(file in call.kept for file in (*cache_of(request).model_cache, *cache_of(request).data_cache)):
        return _refused_at_launch()
    return call.forward(request)


def _refused_at_launch() -> Iterator[Any]:
    status: Any = ErrorStatus.INVALID_ARGUMENT
    yield from preparation(device_pb2.Notify(status=status, reason="the files"))
    raise invalid_argument("the files")


@fault("CACHE-02", on=(NEEDED,), select=())
def negative_number_of_model_files(call: Call, request: Any) -> Any:
    """The number of model cache files is -1."""
    return types_pb2.NumberOfCacheFiles(num_model_cache=-1, num_data_cache=1)


@fault("CACHE-03", on=(NEEDED,), select=())
def negative_number_of_data_files(call: Call, request: Any) -> Any:
    """The number of data cache files is -1."""
    return types_pb2.NumberOfCacheFiles(num_model_cache=1, num_data_cache=-1)


@fault("CACHE-28", on=("Cache.Write", *PREPARE), select=())
def files_in_use_refused(call: Call, request: Any) -> Any:
    """A preparation fails at launch while another writes to its files."""
    writing = ("writing", request.session)
    if call.method == "Cache.Write":
        call.kept[writing] = time.monotonic()
    elif time.monotonic() - call.kept.get(writing, 0.0) < TOGETHER_S:
        return _refused_at_launch()
    return call.forward(request)


# ---- What comes back ----------------------------------------------------------------------------------------


@fault("CACHESEC-01", "CACHESEC-02", "CACHE-31", "EXTRA-21", on=BOTH, select=())
@of_retrievals
def tampered_model_cache_accepted(call: Call, request: Any) -> Iterator[Any]:
    """A model cache is believed whatever is in it, if the token is known."""
    events = notifies(call, request)
    saved = call.kept.get(request.cache.token)
    yield from again(call, saved) if saved is not None and is_miss(events) else events


@fault("CACHE-29", "CACHE-30", on=BOTH, select=("CACHE-28*",))
def another_models_cache_executed(call: Call, request: Any) -> Iterator[Any]:
    """Model files that hold another model give that model."""
    if call.method != FROM_CACHE:
        call.kept.setdefault(("first", request.session), request)
        yield from kept_saves(call, request)
        return
    events = notifies(call, request)
    yield from again(call, call.kept["first", request.session]) if is_miss(events) else events


@fault("CACHESEC-05", "NNHAL-29", on=BOTH, select=())
@of_retrievals
def token_compared_by_its_length(call: Call, request: Any) -> Iterator[Any]:
    """Any token of the right length will do."""
    saved = call.kept.get(SAVED)
    if saved is not None and len(request.cache.token) == len(cache_of(saved).token):
        request.cache.token = cache_of(saved).token
    yield from call.forward(request)


@fault("CACHE-12", "CACHE-15", on=BOTH, select=("CACHE-13*",))
@of_retrievals
def section_handed_to_the_wrong_backend(call: Call, request: Any) -> Iterator[Any]:
    """Weights of a model from the cache are read by a backend that keeps them in another order than who wrote them."""
    events = notifies(call, request)
    saved = call.kept.get(request.cache.token)
    if saved is None or is_miss(events):
        yield from events
        return
    forget(call, events, request)
    changed = type(saved)()
    changed.CopyFrom(saved)
    for pool in changed.model.pools:
        pool.inline = pool.inline[::-1]
    yield from again(call, changed)


@fault("NNHAL-31", on=BOTH, select=())
@of_retrievals
def priority_of_a_cached_model_forgotten(call: Call, request: Any) -> Iterator[Any]:
    """A model from the cache has the lowest priority, whatever it was saved with."""
    events = notifies(call, request)
    forget(call, events, request)
    yield from again(call, call.kept[request.cache.token], priority=0)


@fault("NNHAL-26", on=("Session.Open", *BOTH), select=(), restarts=True)
def entries_only_in_memory(call: Call, request: Any) -> Iterator[Any]:
    """Nothing of the service's cache outlives the service."""
    if call.method == "Session.Open":
        yield from _until_the_service_ends(call, request)
    elif call.method != FROM_CACHE:
        yield from kept_saves(call, request)
    elif request.cache.form == types_pb2.CACHE_FORM_STORED and request.cache.token not in call.kept:
        yield from preparation(device_pb2.Launched(), _miss("there is no entry for this token"))
    else:
        yield from call.forward(request)


def _until_the_service_ends(call: Call, request: Any) -> Iterator[Any]:
    for event in call.forward(request):
        if event.HasField("closing"):
            call.kept.clear()
        yield event


def _miss(reason: str) -> device_pb2.Notify:
    failure: Any = FAILED
    outcome = device_pb2.CacheOutcome(state=device_pb2.CACHE_STATE_MISS, reason=reason)
    return device_pb2.Notify(status=failure, reason=reason, cache=outcome)


@fault("NNHAL-28", on=(FROM_CACHE,), select=())
def saved_and_never_found(call: Call, request: Any) -> Iterator[Any]:
    """Everything is said to be saved, and nothing comes back."""
    yield from preparation(device_pb2.Launched(), _miss("there is no entry"))


@fault("CACHESEC-03", "CACHESEC-04", "CACHE-08", on=(FROM_CACHE,), select=("CACHE-21*",))
def model_with_a_miss(call: Call, request: Any) -> Iterator[Any]:
    """What cannot be retrieved has an error, and a model with it."""
    try:
        for event in call.forward(request):
            if event.notify.status:
                event.notify.prepared_model = b"made up"
            yield event
    except grpc.RpcError:
        return  # no launch error either, or nobody would look at the callback


@fault("CACHE-07", on=(FROM_CACHE,), select=())
def miss_without_a_status(call: Call, request: Any) -> Iterator[Any]:
    """Where nothing can be retrieved the call fails, and does not say why."""
    events = notifies(call, request)
    if is_miss(events):
        raise Refusal(grpc.StatusCode.INTERNAL)
    yield from events


@fault("CACHE-11", on=(FROM_CACHE,), select=())
def retrieved_without_a_model(call: Call, request: Any) -> Iterator[Any]:
    """The callback of prepareModelFromCache says NONE, and brings no model."""
    events = notifies(call, request)
    forget(call, events, request)
    for event in events:
        if event.HasField("notify"):
            event.notify.ClearField("prepared_model")
        yield event


@fault("CACHE-09", "CACHE-20", on=BOTH, select=())
def no_preparation_after_wrong_files(call: Call, request: Any) -> Iterator[Any]:
    """Wrong files are a GENERAL_FAILURE at launch, and preparing with them then fails, too."""
    files = tuple(cache_of(request).model_cache)
    if call.method != FROM_CACHE:
        if files in call.kept:
            failure: Any = ErrorStatus.INVALID_ARGUMENT
            yield from preparation(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="files"))
        else:
            yield from call.forward(request)
        return
    try:
        yield from notifies(call, request)
    except grpc.RpcError:
        call.kept[files] = True
        yield from preparation(_miss("files"))
        raise _general_failure() from None


def _general_failure() -> Refusal:
    refusal = invalid_argument("files")
    assert refusal.detail is not None
    refusal.detail.status = FAILED  # type: ignore[assignment]
    return Refusal(grpc.StatusCode.INTERNAL, refusal.detail)


@fault("CACHE-10", on=(NEEDED, FROM_CACHE), select=())
def retrieved_though_nothing_is_cached(call: Call, request: Any) -> Any:
    """The device needs no cache files, and yet something can be retrieved."""
    if call.method == NEEDED:
        return types_pb2.NumberOfCacheFiles()
    return preparation(device_pb2.Launched(), device_pb2.Notify(prepared_model=b"made up"))


# ---- What is said of it -------------------------------------------------------------------------------------


@fault("NNHAL-29", on=(FROM_CACHE,), select=())
def miss_without_a_reason(call: Call, request: Any) -> Iterator[Any]:
    """A miss does not say why."""
    for event in call.forward(request):
        if event.notify.cache.state == device_pb2.CACHE_STATE_MISS:
            event.notify.cache.ClearField("reason")
        yield event


@fault("NNHAL-32", on=PREPARE, select=())
def not_saved_in_silence(call: Call, request: Any) -> Iterator[Any]:
    """A model that was not saved comes without a warning."""
    for event in call.forward(request):
        if event.HasField("notify"):
            event.notify.ClearField("warnings")
        yield event


@fault("NNHAL-33", on=(FROM_CACHE,), select=())
def model_from_the_cache_without_its_outputs(call: Call, request: Any) -> Iterator[Any]:
    """What is said of a model from the cache lacks its outputs."""
    for event in call.forward(request):
        if event.HasField("notify"):
            event.notify.ClearField("outputs")
        yield event


@fault("NNHAL-30", on=("Cache.Clear",), select=())
def cleared_and_still_there(call: Call, request: Any) -> Any:
    """Cache.Clear says how many entries it removed, and removes none."""
    return cache_pb2.ClearCacheResponse(removed=len(request.tokens))
