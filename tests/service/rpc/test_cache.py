"""Cache files and entries over the contract, with limits on files, bytes and descriptors."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nnhal.v1 import cache_pb2, cache_pb2_grpc, error_pb2, session_pb2, types_pb2
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.model_cache.cache_file import CacheFile, open_cache_files
from nnhal_service.server import Server
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings
from tests.cache.entries import load, read_all, save, token
from tests.concurrency import wait_until
from tests.end_to_end.support.raw_client import RawSession, error_detail, open_raw_session

READ, WRITE, BOTH = (
    cache_pb2.ACCESS_MODE_READ_ONLY,
    cache_pb2.ACCESS_MODE_WRITE_ONLY,
    cache_pb2.ACCESS_MODE_READ_WRITE,
)
LIMITS = {"cache_files": 3, "cache_file_bytes": 1000, "open_cache_files": 5}


@dataclass(frozen=True)
class Client:
    """Session with one method for each RPC of Cache."""

    raw: RawSession
    cache: cache_pb2_grpc.CacheStub

    def open(self, name: str, mode: cache_pb2.AccessMode.ValueType = BOTH, offset: int = 0) -> bytes:
        request = cache_pb2.OpenCacheFileRequest(session=self.raw.session, name=name, mode=mode, offset=offset)
        return self.cache.Open(request).file

    def read(self, file: bytes, length: int = 2**20) -> bytes:
        return self.cache.Read(cache_pb2.ReadCacheFileRequest(session=self.raw.session, file=file, length=length)).data

    def write(self, file: bytes, data: bytes) -> None:
        self.cache.Write(cache_pb2.WriteCacheFileRequest(session=self.raw.session, file=file, data=data))

    def seek(self, file: bytes, offset: int) -> None:
        self.cache.Seek(cache_pb2.SeekCacheFileRequest(session=self.raw.session, file=file, offset=offset))

    def truncate(self, file: bytes, size: int) -> None:
        self.cache.Truncate(cache_pb2.TruncateCacheFileRequest(session=self.raw.session, file=file, size=size))

    def delete(self, name: str) -> None:
        self.cache.Delete(cache_pb2.DeleteCacheFileRequest(session=self.raw.session, name=name))

    def release(self, file: bytes) -> None:
        self.raw.sessions.Release(session_pb2.ReleaseRequest(session=self.raw.session, handles=[file]))

    def list(self) -> list[cache_pb2.CacheEntry]:
        return list(self.cache.List(cache_pb2.ListCacheRequest(session=self.raw.session)).entries)

    def clear(self, *tokens: bytes) -> int:
        return self.cache.Clear(cache_pb2.ClearCacheRequest(session=self.raw.session, tokens=tokens)).removed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = Settings(
        listen=("127.0.0.1:0",), cache_dir=tmp_path / "cache", limits=LIMITS, session_grace_s=0.05, backends=("CpuRef",)
    )
    with Server(settings) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with open_raw_session(server.addresses[0]) as raw:
        yield Client(raw, cache_pb2_grpc.CacheStub(raw.channel))


def failure(call: Callable[[], object]) -> tuple[str, error_pb2.ErrorDetail]:
    """Make a call that fails, and return its gRPC code and error details."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code().name, error_detail(caught.value)


def open_in(folder: Path) -> list[str]:
    """Return the files below a folder that this process has open."""
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        files += [target] if target.startswith(str(folder)) else []
    return files


def test_reads_and_writes_use_the_offset(client: Client) -> None:
    file = client.open("model")
    client.write(file, b"hello ")
    client.write(file, b"world")
    assert client.read(file) == b""
    client.seek(file, 2)
    assert client.read(file, 3) == b"llo"
    assert client.read(file) == b" world"
    client.truncate(file, 5)
    client.seek(file, 0)
    assert client.read(file) == b"hello"
    client.seek(file, 7)
    client.write(file, b"!")
    client.seek(file, 0)
    assert client.read(file) == b"hello\0\0!"
    assert client.read(file, 0) == b""


def test_each_handle_has_its_own_offset(client: Client) -> None:
    first = client.open("model")
    client.write(first, b"0123456789")
    request = cache_pb2.OpenCacheFileRequest(session=client.raw.session, name="model", mode=READ, offset=4)
    opened = client.cache.Open(request)
    assert opened.size == 10
    assert client.read(opened.file) == b"456789"
    assert client.read(first) == b""


def test_files_outlive_their_session(server: Server, client: Client) -> None:
    client.write(client.open("model"), b"kept")
    with open_raw_session(server.addresses[0]) as raw:
        other = Client(raw, cache_pb2_grpc.CacheStub(raw.channel))
        assert other.read(other.open("model", READ)) == b"kept"


def test_access_modes_are_checked(client: Client) -> None:
    client.write(client.open("model"), b"x")
    reader, writer = client.open("model", READ), client.open("model", WRITE)
    client.write(writer, b"y")
    assert client.read(reader) == b"y"
    for call, text in (
        (lambda: client.read(writer), "open for writing only, not for reading"),
        (lambda: client.write(reader, b"z"), "open for reading only, not for writing"),
        (lambda: client.truncate(reader, 0), "open for reading only, not for writing"),
    ):
        code, error = failure(call)
        assert (code, error.status) == ("INVALID_ARGUMENT", 4)
        assert text in error.reason


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("offset is -1", lambda client, file: client.open("model", offset=-1)),
        ("offset is -1", lambda client, file: client.seek(file, -1)),
        ("size is -1", lambda client, file: client.truncate(file, -1)),
        ("length is -1", lambda client, file: client.read(file, -1)),
        ("length is 1048577", lambda client, file: client.read(file, 2**20 + 1)),
        ("access mode 0", lambda client, file: client.open("model", 0)),
        ("access mode 4", lambda client, file: client.open("model", 4)),
        ("invalid file name 'a/b'", lambda client, file: client.open("a/b")),
        ("invalid file name", lambda client, file: client.delete("../key")),
        ("name and shared", lambda client, file: client.cache.Open(cache_pb2.OpenCacheFileRequest(
            session=client.raw.session, mode=BOTH))),
        ("shares no file with number 7", lambda client, file: client.cache.Open(cache_pb2.OpenCacheFileRequest(
            session=client.raw.session, mode=BOTH, shared=7))),
    ],
)  # fmt: skip
def test_invalid_arguments(client: Client, text: str, call: Callable[[Client, bytes], object]) -> None:
    file = client.open("model")
    code, error = failure(lambda: call(client, file))
    assert (code, error.status) == ("INVALID_ARGUMENT", 4)
    assert text in error.reason


def test_unknown_files_and_names(server: Server, client: Client) -> None:
    file = client.open("model")
    with open_raw_session(server.addresses[0]) as raw:
        other = Client(raw, cache_pb2_grpc.CacheStub(raw.channel))
        calls: list[Callable[[], object]] = [
            lambda: other.read(file),
            lambda: other.write(file, b""),
            lambda: other.seek(b"nonsense", 0),
            lambda: other.truncate(b"", 0),
            lambda: other.delete("unknown"),
        ]
        for call in calls:
            code, error = failure(call)
            assert (code, error.kind) == ("NOT_FOUND", error_pb2.ERROR_KIND_UNKNOWN_HANDLE)
    client.release(file)
    assert failure(lambda: client.read(file))[0] == "NOT_FOUND"


def test_deleted_files_cannot_grow(client: Client) -> None:
    file = client.open("model")
    client.write(file, b"hello")
    client.delete("model")
    client.seek(file, 0)
    assert client.read(file) == b"hello"
    assert failure(lambda: client.write(file, b"x"))[0] == "INVALID_ARGUMENT"
    assert client.read(client.open("model")) == b""


def test_errors_name_the_limit(client: Client) -> None:
    files = [client.open(name) for name in "abc"]
    assert failure(lambda: client.open("d"))[1].limit == "cache_files"
    client.write(files[0], bytes(600))
    client.truncate(files[1], 400)
    calls = (lambda: client.write(files[2], b"x"), lambda: client.truncate(files[2], 1))
    for offset in (0, 2**40):
        client.seek(files[2], offset)
        for call in calls:
            code, error = failure(call)
            assert (code, error.limit) == ("RESOURCE_EXHAUSTED", "cache_file_bytes")
    client.truncate(files[0], 500)
    client.seek(files[2], 0)
    client.write(files[2], bytes(100))
    client.open("a"), client.open("a")
    assert failure(lambda: client.open("a"))[1].limit == "open_cache_files"
    client.release(files[0])
    client.open("a")


def test_descriptors_are_closed_with_handle_and_session(server: Server, client: Client) -> None:
    folder = server.settings.cache_dir
    before = open_in(folder)
    file = client.open("model")
    client.open("model")
    assert len(open_in(folder)) == len(before) + 2
    client.release(file)
    assert len(open_in(folder)) == len(before) + 1
    failure(lambda: client.open("model", offset=2**63 - 1) and client.open("model", offset=-1))
    client.raw.sessions.Close(session_pb2.CloseRequest(session=client.raw.session))
    assert wait_until(lambda: open_in(folder) == before)


def test_entries_are_listed_and_cleared(server: Server, client: Client) -> None:
    store = server.store
    for number in range(3):
        save(store, number, b"12345", b"123", "anonymous")
    save(store, 4, identity="another identity")
    assert {entry.token for entry in client.list()} == {token(number) for number in range(3)}
    entry = client.list()[0]
    assert (entry.size, entry.hits) == (8, 0)
    assert load(store, int(entry.token == token(1)), "anonymous") is not None
    assert sum(entry.hits for entry in client.list()) == 1
    assert time.time() - 60 < entry.saved_at <= entry.last_used_at <= time.time()
    assert client.clear(token(1), token(4)) == 1
    assert client.clear() == 2
    assert client.list() == []
    assert load(store, 4, "another identity") is not None


def test_unusable_directory(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    server = Server(Settings(listen=("127.0.0.1:0",), cache_dir=folder, backends=("CpuRef",)))
    with server, open_raw_session(server.addresses[0]) as raw:
        client = Client(raw, cache_pb2_grpc.CacheStub(raw.channel))
        calls: list[Callable[[], object]] = [client.list, client.clear, lambda: client.open("model")]
        for call in calls:
            code, error = failure(call)
            assert (code, error.status) == ("INTERNAL", 2)
            assert "other users may write" in error.reason
    assert list(folder.iterdir()) == []


def test_unusable_key_file_prevents_the_start(tmp_path: Path) -> None:
    settings = Settings(listen=("127.0.0.1:0",), cache_key_file=tmp_path / "key", cache_dir=tmp_path / "cache")
    with pytest.raises(ValueError, match="key"):
        Server(settings)


class TestOpenCacheFiles:
    """Files that a driver receives."""

    @pytest.fixture
    def session(self) -> Session:
        return Session("s1", ANONYMOUS)

    def add(self, session: Session, path: Path, access: int) -> bytes:
        return session.add(CacheFile(os.open(path, access | os.O_CREAT), named=True))

    def test_descriptors_are_open_within_and_closed_after(self, session: Session, tmp_path: Path) -> None:
        model, data = (self.add(session, tmp_path / name, os.O_RDWR) for name in ("model", "data"))
        (tmp_path / "model").write_bytes(b"M")
        message = types_pb2.CompilationCache(model_cache=[model], data_cache=[data, data], token=token(1))
        with open_cache_files(session, message) as files:
            assert (len(files.model), len(files.data), files.token) == (1, 2, token(1))
            assert read_all(files.model[0]) == b"M"
            session.close("test")  # the driver's descriptors stay open
            assert read_all(files.model[0]) == b"M"
        assert open_in(tmp_path) == []

    def test_unknown_handle_closes_the_others(self, session: Session, tmp_path: Path) -> None:
        model = self.add(session, tmp_path / "model", os.O_RDWR)
        before = open_in(tmp_path)
        message = types_pb2.CompilationCache(model_cache=[model], data_cache=[b"unknown"])
        with pytest.raises(Exception, match="no such object"), open_cache_files(session, message):
            pass
        assert open_in(tmp_path) == before

    def test_number_of_descriptors_is_bounded(self, session: Session, tmp_path: Path) -> None:
        model = self.add(session, tmp_path / "model", os.O_RDWR)
        with open_cache_files(session, types_pb2.CompilationCache(model_cache=[model] * 10_000)) as files:
            assert len(files.model) == 33
