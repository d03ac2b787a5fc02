"""Warm start: a model from the service's cache after a restart of the server (NNHAL-26)."""

import hashlib
import subprocess

from nnhal.v1 import device_pb2, types_pb2
from tools.conformance.check import CheckFailed, Judge, Skipped
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, request_of
from tools.conformance.target import WATCHDOG_S, Prepared, Target, collect

NAME = "network"
TOKEN = hashlib.sha256(b"nnhal conformance: warm start").digest()


@check("NNHAL-26", alone=True)
def warm_start(target: Target, judge: Judge) -> None:
    """Prepared into the cache, the server restarted, prepared from the cache, executed."""
    target.call("Device", "PrepareModelFromCache", _from_cache(target))  # unsupported: there is no cache
    if not target.restart_command:
        raise Skipped("", "needs --restart-cmd")
    saved = _prepared_into_cache(target)
    is_saved = bool(saved.model) and saved.callbacks[0].cache.state == device_pb2.CACHE_STATE_SAVED
    judge.expect("NNHAL-26", is_saved, "prepareModel with a cache that the service keeps", "SAVED", saved.callbacks)
    _restart(target.restart_command)
    with target.another() as after:
        found = collect(after.device.PrepareModelFromCache(_from_cache(after), timeout=WATCHDOG_S))
        what = "prepareModelFromCache after a restart"
        judge.expect("NNHAL-26", bool(found.model), what, "NONE", found.callback)
        expect_right(judge, "NNHAL-26", NAME, after.execute(found.model, request_of(NAME)), what)


def _cache() -> types_pb2.CompilationCache:
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=TOKEN)


def _from_cache(target: Target) -> device_pb2.PrepareModelFromCacheRequest:
    return device_pb2.PrepareModelFromCacheRequest(session=target.session, device=target.name, cache=_cache())


def _prepared_into_cache(target: Target) -> Prepared:
    config = types_pb2.PrepareModelConfig(preference=1, priority=1, cache=_cache())  # type: ignore[arg-type]
    return target.prepare_with_config(named(NAME).model(), config)


def _restart(command: str) -> None:
    """Runs the command, which is the user's own and for the shell.

    Raises:
        CheckFailed: it does not succeed.
    """
    try:
        subprocess.run(command, shell=True, check=True, timeout=WATCHDOG_S)
    except subprocess.SubprocessError as error:
        raise CheckFailed("NNHAL-26", "--restart-cmd", "exit status 0", error) from None
