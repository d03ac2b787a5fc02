"""Models from the service's store and from files after a restart of the server (NNHAL-26)."""

import hashlib

from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.caching.files import CacheFolder
from nnhal_tools.conformance.caching.round_trip import (
    file_cache,
    files_needed,
    prepare_and_save,
    prepare_from_cache,
    stored_cache,
)
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.control import RESTART
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, expect_correct, supported_model

NAME = "network"
TOKEN = hashlib.sha256(b"nnhal conformance: warm start").digest()


@check("NNHAL-26", exclusive=True)
def store_survives_restart(target: Target, recorder: CheckRecorder) -> None:
    """Check that a model in the service's store can be retrieved after a restart, and executes correctly."""
    _require_restart(target)
    with target.new_session() as before:
        _expect_saved(recorder, before, stored_cache(TOKEN))
    target.control.run(RESTART, "NNHAL-26")
    with target.new_session() as after:
        _expect_retrieved(recorder, after, stored_cache(TOKEN))


@check("NNHAL-26", "from files", exclusive=True)
def files_survive_restart(target: Target, recorder: CheckRecorder) -> None:
    """Check that a model in files of the client can be retrieved after a restart, and executes correctly."""
    _require_restart(target)
    model_count, data_count = files_needed(target, recorder)
    names = [f"model-{i}" for i in range(model_count)], [f"data-{i}" for i in range(data_count)]
    with target.new_session() as before:
        folder = CacheFolder(before)
        with folder.open_files(*names) as files:
            _expect_saved(recorder, before, file_cache(TOKEN, files))
    target.control.run(RESTART, "NNHAL-26")
    with target.new_session() as after, folder.for_session(after) as folder, folder.open_files(*names) as files:
        _expect_retrieved(recorder, after, file_cache(TOKEN, files))


def _require_restart(target: Target) -> None:
    """End the check early if there is no cache, or no command that restarts the server.

    Raises:
        Unsupported: the device does not implement prepareModelFromCache.
        Skipped: there is no restart command.
    """
    target.call("Device.PrepareModelFromCache")
    target.control.require(RESTART)


def _expect_saved(recorder: CheckRecorder, target: Target, cache: types_pb2.CompilationCache) -> None:
    saved = prepare_and_save(target, supported_model(target, builtin_case(NAME)), cache)
    is_saved = bool(saved.model) and saved.callbacks[0].cache.state == device_pb2.CACHE_STATE_SAVED
    recorder.expect(is_saved, "prepareModel with a cache", "SAVED", saved.callbacks)


def _expect_retrieved(recorder: CheckRecorder, target: Target, cache: types_pb2.CompilationCache) -> None:
    retrieved, stimulus = prepare_from_cache(target, cache), "prepareModelFromCache after a restart"
    recorder.expect(bool(retrieved.model), stimulus, "NONE", retrieved.callback)
    expect_correct(recorder, NAME, target.execute(retrieved.model, builtin_request(NAME)), stimulus)
