"""Entries of other models under the token of a client's model: they are never used."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal import ModelBuilder
from nnhal.client.core.cache import PreparationSpec
from nnhal.types import CacheState, ExecutionPreference, Model, Priority
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_service.model_cache.cache_arguments import ROLLED_BACK
from nnhal_service.server import Server
from nnhal_service.settings import Settings

X = np.arange(4, dtype=np.float32)


def adding(constant: float) -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [4])
    b.output(b.add(Op.ADD, x, np.full(4, constant, np.float32), 0, output=x.description))
    return b.build()


@pytest.mark.parametrize("derived", [True, False])
def test_entry_of_an_altered_model_is_replaced(tmp_path: Path, derived: bool) -> None:
    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), cache_dir=tmp_path / "cache")
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        options = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM
        token = PreparationSpec.of(adding(1), device.name, *options, None).token_for(device.version)
        assert device.prepare(adding(1), token=token).result(60).cache.state == CacheState.SAVED
        assert device.cached(adding(1)).state == CacheState.HIT  # the token of the public model
        assert device.prepare(adding(2), token=token).result(60).cache.state == CacheState.SAVED
        assert device.cached(adding(1)).state == CacheState.MISS
        for state, reason in ((CacheState.SAVED, "it was saved for another model"), (CacheState.HIT, "")):
            prepared = device.prepare(adding(1), **({"cache": True} if derived else {"token": token})).result(60)
            assert (prepared.cache.state, prepared.cache.reason) == (state, reason)
            assert prepared.execute([X])[0].tolist() == (X + 1).tolist()


def test_older_entry_that_is_put_back_is_not_used(tmp_path: Path) -> None:
    """An entry that was replaced is refused later, although its seal is valid. Saving the same model again is fine."""
    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), cache_dir=tmp_path / "cache")
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        token = bytes(32)
        assert device.prepare(adding(1), token=token).result(60).cache.state == CacheState.SAVED
        (link,) = server.store.layout.links()
        old = Path(link.path).resolve()
        shutil.copytree(old, tmp_path / "old")
        assert device.prepare(adding(2), token=token).result(60).cache.state == CacheState.SAVED
        new = Path(link.path).resolve()
        shutil.rmtree(new)
        shutil.copytree(tmp_path / "old", new)
        for state, reason in ((CacheState.SAVED, ROLLED_BACK), (CacheState.HIT, "")):
            prepared = device.prepare(adding(1), token=token).result(60)
            assert (prepared.cache.state, prepared.cache.reason) == (state, reason)
        assert server.store.counters().set_aside == 1
