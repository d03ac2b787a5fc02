"""Warm start: models from the service's store, and from files, after a restart of the server (NNHAL-26)."""

import hashlib
import subprocess

from nnhal.v1 import device_pb2, types_pb2
from tools.conformance.caching.files import CacheFolder
from tools.conformance.caching.trial import files_needed, in_files, in_store, prepare_from, prepare_into
from tools.conformance.check import CheckFailed, Judge, Skipped
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, request_of, taken
from tools.conformance.target import WATCHDOG_S, Target

NAME = "network"
TOKEN = hashlib.sha256(b"nnhal conformance: warm start").digest()


@check("NNHAL-26", alone=True)
def warm_start(target: Target, judge: Judge) -> None:
    """Prepared into the service's store, the server restarted, prepared from the store, executed."""
    _demand_restart(target)
    with target.another() as before:
        _expect_saved(judge, before, in_store(TOKEN))
    _restart(target.restart_command)
    with target.another() as after:
        _expect_there(judge, after, in_store(TOKEN))


@check("NNHAL-26", "from files", alone=True)
def warm_start_from_files(target: Target, judge: Judge) -> None:
    """The same with files of the client, which are opened anew."""
    _demand_restart(target)
    models, datas = files_needed(target, judge)
    names = [f"model-{i}" for i in range(models)], [f"data-{i}" for i in range(datas)]
    with target.another() as before:
        folder = CacheFolder(before)
        with folder.opened(*names) as files:
            _expect_saved(judge, before, in_files(TOKEN, files))
    _restart(target.restart_command)
    with target.another() as after, folder.of(after) as folder, folder.opened(*names) as files:
        _expect_there(judge, after, in_files(TOKEN, files))


def _demand_restart(target: Target) -> None:
    """Ends the check where there is no cache, or no way to restart the server.

    Raises:
        Unsupported, Skipped.
    """
    target.call("Device", "PrepareModelFromCache", device_pb2.PrepareModelFromCacheRequest(session=target.session))
    if not target.restart_command:
        raise Skipped("", "needs --restart-cmd")


def _expect_saved(judge: Judge, target: Target, cache: types_pb2.CompilationCache) -> None:
    saved = prepare_into(target, taken(target, named(NAME)).model(), cache)
    is_saved = bool(saved.model) and saved.callbacks[0].cache.state == device_pb2.CACHE_STATE_SAVED
    judge.expect("NNHAL-26", is_saved, "prepareModel with a cache", "SAVED", saved.callbacks)


def _expect_there(judge: Judge, target: Target, cache: types_pb2.CompilationCache) -> None:
    found, what = prepare_from(target, cache), "prepareModelFromCache after a restart"
    judge.expect("NNHAL-26", bool(found.model), what, "NONE", found.callback)
    expect_right(judge, "NNHAL-26", NAME, target.execute(found.model, request_of(NAME)), what)


def _restart(command: str) -> None:
    """Runs the command, which is the user's own and for the shell.

    Raises:
        CheckFailed: it does not succeed.
    """
    try:
        subprocess.run(command, shell=True, check=True, timeout=WATCHDOG_S)
    except subprocess.SubprocessError as error:
        raise CheckFailed("NNHAL-26", "--restart-cmd", "exit status 0", error) from None
