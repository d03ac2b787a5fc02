"""Isolation: an identity learns nothing of another one that has the same model under the same token."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from nnhal.v1 import cache_pb2, cache_pb2_grpc, device_pb2, enums_pb2, types_pb2
from nnhal_driver.scheduling.paced_check import proceed
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.identity.tokens import create_token
from nnhal_service.server import Server
from nnhal_service.sessions.received_model import ReceivedModelReader
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings
from tests.end_to_end.support.raw_client import F32, ModelWriter, RawSession
from tests.service.identity.callers import failure, open_session

TOKEN = hashlib.sha256(b"the same").digest()
CACHE = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=TOKEN)
Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Yield a function that opens a session of a client by the name of its token."""
    folder = tmp_path_factory.mktemp("isolation")
    created = {name: create_token(name) for name in ("alice", "bob", "eve", "plain", "operator")}
    (folder / "tokens").write_text("\n".join(line for _, line in created.values()))
    rules = {"token:plain": {"extensions": False, "prepared_models": 1, "cache_bytes": 100}}
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_dir=folder / "cache",
        state_dir=folder / "state",
        tokens=folder / "tokens",
        policy={"identities": {**rules, "token:operator": {"administer": True}}},  # type: ignore[arg-type]
    )
    with Server(settings) as server:
        yield lambda name: open_session(server.addresses[0], f"Bearer {created[name][0]}")


def model() -> types_pb2.Model:
    """Return a model that adds an input to itself."""
    writer = ModelWriter()
    operand = writer.input((2,))
    writer.apply("ADD", [operand, operand, writer.number(0)], (2,), type_=F32, last=True)
    return writer.model


def prepare(raw: RawSession, **fields: Any) -> device_pb2.Notify:
    """Prepare the model, and return the outcome."""
    request = device_pb2.PrepareModelRequest(
        session=raw.session,
        model=model(),
        preference=enums_pb2.EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER,
        priority=enums_pb2.PRIORITY_MEDIUM,
        **fields,
    )
    *_, last = raw.device.PrepareModel(request)
    return last.notify


def load(raw: RawSession) -> Any:
    """Prepare from the cache, and return the outcome, or the code and reason of the error."""
    request = device_pb2.PrepareModelFromCacheRequest(session=raw.session, cache=CACHE)
    try:
        *_, last = raw.device.PrepareModelFromCache(request)
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        return error.code(), error.details()
    return last.notify.status, last.notify.cache.state


def visible(raw: RawSession) -> list[Any]:
    """Return everything that a client can learn of the cache."""
    cache = cache_pb2_grpc.CacheStub(raw.channel)
    check = cache.Check(cache_pb2.CheckCacheRequest(session=raw.session, cache=CACHE))
    deleting = cache_pb2.DeleteCacheFileRequest(session=raw.session, name="private")
    return [
        check.outcome.SerializeToString(),
        load(raw),
        failure(lambda: cache.Delete(deleting))[0],
        cache.List(cache_pb2.ListCacheRequest(session=raw.session)).SerializeToString(),
        cache.Clear(cache_pb2.ClearCacheRequest(session=raw.session)).removed,
        cache.Clear(cache_pb2.ClearCacheRequest(session=raw.session, tokens=[TOKEN])).removed,
    ]


def test_an_identity_sees_the_same_whether_another_one_has_its_model_or_not(service: Open) -> None:
    with service("bob") as bob:
        before = visible(bob)
    with service("alice") as alice:
        assert prepare(alice, cache=CACHE).cache.state == device_pb2.CACHE_STATE_SAVED
        files = cache_pb2_grpc.CacheStub(alice.channel)
        mode = cache_pb2.ACCESS_MODE_READ_WRITE
        files.Open(cache_pb2.OpenCacheFileRequest(session=alice.session, name="private", mode=mode))
        with service("eve") as eve:
            assert visible(eve) == before
            saved = prepare(eve, cache=CACHE)
            assert (saved.cache.state, saved.cache.reason) == (device_pb2.CACHE_STATE_SAVED, "")
        assert load(alice)[1] == device_pb2.CACHE_STATE_HIT
        listed = files.List(cache_pb2.ListCacheRequest(session=alice.session))
        assert (len(listed.entries), listed.counters.saves, listed.counters.hits) == (1, 1, 1)


def test_each_identity_has_digests_of_its_own() -> None:
    """The quarantine and the probes know models by these digests. Those of anonymous clients are the clients' own."""
    reader, message = ReceivedModelReader(), model()
    alice, bob, nobody, other = (
        reader.read(Session("s", identity), message, proceed)[1]
        for identity in (Identity("token", "alice"), Identity("token", "bob"), ANONYMOUS, ANONYMOUS)
    )
    assert len({alice, bob, nobody}) == 3
    assert nobody == other
    assert {len(digest) for digest in (alice, bob, nobody)} == {32}
    assert scoped_digest(Identity("token", "alice"), alice) == nobody


def test_clients_get_the_digest_that_they_can_compute(service: Open) -> None:
    """An execution, too, finds the model that was saved under the digest of the client."""
    plain = ReceivedModelReader().read(Session("s", ANONYMOUS), model(), proceed)[1]
    cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=bytes(32), model_digest=plain)
    with service("bob") as raw:
        prepared = prepare(raw, cache=cache)
        assert (prepared.model_digest, prepared.cache.state) == (plain, device_pb2.CACHE_STATE_SAVED)
        request = device_pb2.PrepareModelFromCacheRequest(session=raw.session, cache=cache)
        *_, last = raw.device.PrepareModelFromCache(request)
        assert (last.notify.model_digest, last.notify.cache.state) == (plain, device_pb2.CACHE_STATE_HIT)


def test_extensions_need_the_permission_of_the_policy(service: Open) -> None:
    names = [types_pb2.ExtensionNameAndPrefix(name="org.nnhal.litert", prefix=1)]
    message = model()
    message.extension_name_to_prefix.extend(names)
    with service("plain") as raw:
        asking = device_pb2.GetSupportedOperationsRequest(session=raw.session, model=message)
        code, detail = failure(lambda: raw.device.GetSupportedOperations(asking))
        assert (code, detail.reason) == ("PERMISSION_DENIED", "token:plain may not use vendor extensions")
        preparing = device_pb2.PrepareModelWithConfigRequest(session=raw.session, model=model())
        preparing.config.extension_name_to_prefix.extend(names)
        preparing.config.preference = enums_pb2.EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER
        preparing.config.priority = enums_pb2.PRIORITY_MEDIUM
        assert failure(lambda: list(raw.device.PrepareModelWithConfig(preparing)))[0] == "PERMISSION_DENIED"


def test_prepared_models_and_cache_bytes_have_quotas(service: Open) -> None:
    with service("plain") as first, service("plain") as second:
        prepared = prepare(first, cache=CACHE)
        assert "the identity has a quota of 100 bytes" in prepared.cache.reason
        assert prepared.status == enums_pb2.ERROR_STATUS_NONE
        assert "has 1 prepared models; its quota is 1" in prepare(second).reason
        files = cache_pb2_grpc.CacheStub(first.channel)
        mode = cache_pb2.ACCESS_MODE_READ_WRITE
        file = files.Open(cache_pb2.OpenCacheFileRequest(session=first.session, name="f", mode=mode)).file
        writing = cache_pb2.WriteCacheFileRequest(session=first.session, file=file, data=bytes(101))
        code, detail = failure(lambda: files.Write(writing))
        assert (code, detail.limit) == ("RESOURCE_EXHAUSTED", "identity_cache_bytes")
