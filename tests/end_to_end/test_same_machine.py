"""Shared memory with a real service: that it is used, that it is right, and what bad clients get out of it: nothing."""

import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import data_socket, frames
from nnhal.data_socket import SharedMemory
from nnhal.frames import Definition, Frame, Kind
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import error_pb2, prepared_model_pb2, session_pb2, types_pb2
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.processes import until
from tests.end_to_end.raw import Raw, chain, prepare_request, raw_session
from tests.threads import at_once

X = tensor(T.TENSOR_FLOAT32, (0,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones(4, np.float32)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Service]:
    """A service of one test's own."""
    running = start(tmp_path, NNHAL_SESSION_GRACE_S="0.1", NNHAL_IDLE_THREAD_S="0.3")
    yield running
    assert stop(running) == 0


# ---- That it is used ----------------------------------------------------------------------------------------


def no_calls(monkeypatch: pytest.MonkeyPatch, device: nnhal.Device) -> None:
    def refused(request: object) -> None:
        raise AssertionError("a tensor went through gRPC")

    monkeypatch.setattr(device._connection, "execute", refused)


def test_tensors_do_not_pass_through_grpc(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with nnhal.connect(service.target) as device:
        no_calls(monkeypatch, device)
        with device.prepare(ADD).result() as prepared:
            for size in (4, 100_000, 4, 3_000_000):
                x = np.arange(size, dtype=np.float32)
                np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)
                np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)
            with pytest.raises(nnhal.HalError) as caught:
                prepared.execute([ONES, ONES], deadline=0)
            assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
            assert prepared.execute([ONES, ONES], measure_timing=True).timing.time_on_device_ns > 0


def test_it_can_be_turned_off(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with nnhal.connect(service.target, transport="grpc") as device:
        no_calls(monkeypatch, device)
        with device.prepare(ADD).result() as prepared, pytest.raises(AssertionError, match="went through gRPC"):
            prepared.execute([ONES, ONES])


def test_more_threads_than_lanes(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(ADD).result() as prepared:

        def work(number: int) -> None:
            for i in range(20):
                x = np.full(1 + (number * i) % 2000, number * i, np.float32)
                np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)

        at_once(20, work)


async def test_asyncio(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(ADD)
        monkeypatch.setattr(device._connection.prepared_model, "ExecuteSynchronously", None)
        for size in (4, 100_000, 4):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal((await prepared.execute([x, x]))[0], 2 * x)


def test_a_model_that_was_closed(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(ADD).result()
        prepared.execute([ONES, ONES])
        prepared.close()
        with pytest.raises(nnhal.HalError) as caught:
            prepared.execute([ONES, ONES])
        assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE
        with device.prepare(ADD).result() as other:
            np.testing.assert_array_equal(other.execute([ONES, ONES])[0], 2 * ONES)


def test_a_session_that_ended(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(ADD).result()
        prepared.execute([ONES, ONES])
        device._connection._sessions.Close(session_pb2.CloseRequest(session=device._connection.session))
        with pytest.raises(nnhal.SessionLostError):
            prepared.execute([ONES, ONES])


def test_a_service_that_dies_during_an_execution(tmp_path: Path) -> None:
    service = start(tmp_path)
    device = nnhal.connect(service.target)
    prepared = device.prepare(ADD).result()
    prepared.execute([ONES, ONES])
    os.kill(service.process.pid, signal.SIGSTOP)
    threading.Timer(0.3, service.process.kill).start()
    with pytest.raises(nnhal.DeadObjectError):
        prepared.execute([ONES, ONES])
    stop(service)
    with pytest.raises(nnhal.DeadObjectError):
        prepared.execute([ONES, ONES])
    device.close()


def test_users_that_are_not_allowed_get_along_without(own: Service) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    code = (
        "import os, sys, numpy as np, nnhal\n"
        "from tests.end_to_end.test_same_machine import ADD\n"
        "os.setuid(65534)\n"
        "device = nnhal.connect(sys.argv[1]); x = np.ones(3, np.float32)\n"
        "print(device.prepare(ADD).result().execute([x, x])[0].tolist()); device.close()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, own.target], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert found.stdout.strip() == "[2.0, 2.0, 2.0]", found.stderr
    assert own.logged("user 65534 may not")


# ---- The protocol, by hand ----------------------------------------------------------------------------------


class Client:
    """A data connection, frame by frame."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.socket = data_socket.connect(raw.opened.data_socket, raw.session, raw.opened.data_secret)
        self.socket.settimeout(30)

    def ask(self, frame: Frame, *descriptors: int) -> Frame:
        data_socket.send(self.socket, frame.pack(), descriptors)
        packet = self.socket.recv(frames.MAX_BYTES)
        assert packet, "the service ended the connection"
        return Frame.unpack(packet)

    def refused(self, frame: Frame, *descriptors: int) -> error_pb2.ErrorDetail:
        answer = self.ask(frame, *descriptors)
        assert answer.kind == Kind.ERROR
        return error_pb2.ErrorDetail.FromString(answer.body)

    def ended(self) -> bool:
        """Whether the service has ended the connection; answers are passed over."""
        try:
            while self.socket.recv(frames.MAX_BYTES):
                pass
        except ConnectionResetError:
            pass
        return True


def prepared(raw: Raw) -> bytes:
    """A model that adds one to two floats."""
    return list(raw.device.PrepareModel(prepare_request(raw, chain(1))))[1].notify.prepared_model


def request(offset: int = 0, output: int = 64, number: int = 1) -> types_pb2.Request:
    """Input and output in a shared memory."""
    location = types_pb2.DataLocation
    return types_pb2.Request(
        inputs=[types_pb2.RequestArgument(location=location(offset=offset, length=8))],
        outputs=[types_pb2.RequestArgument(location=location(offset=output, length=8))],
        pools=[types_pb2.RequestMemoryPool(pool=types_pb2.Memory(shared=number))],
    )


def define(handle: bytes, message: types_pb2.Request, area: tuple[int, int, int] = (0, 0, 0)) -> Frame:
    return Frame(Kind.DEFINE, 1, body=Definition(handle, *area, message.SerializeToString()).pack())


@contextmanager
def ready(service: Service) -> Iterator[tuple[Client, bytes, SharedMemory]]:
    """A client that shares 4096 bytes as number 1, and its model."""
    with raw_session(service.target) as raw:
        client = Client(raw)
        memory = SharedMemory(4096)
        assert client.ask(Frame(Kind.SHARE, 1), memory.descriptor).kind == Kind.DONE
        try:
            yield client, prepared(raw), memory
        finally:
            os.close(memory.descriptor)
            client.socket.close()


def works(client: Client, memory: SharedMemory, value: float = 3.0) -> None:
    memory.bytes[:8] = np.full(2, value, np.float32).view(np.uint8)
    assert client.ask(Frame(Kind.RUN, 1)).kind == Kind.RESULT
    np.testing.assert_array_equal(memory.bytes[64:72].view(np.float32), np.full(2, value + 1))


def test_execution_by_hand(service: Service) -> None:
    with ready(service) as (client, handle, memory):
        assert client.ask(define(handle, request())).kind == Kind.DONE
        for value in range(5):
            works(client, memory, value)
        answer = client.ask(Frame(Kind.RUN, 1, flags=frames.MEASURE, first=10**10))
        assert answer.first > 0
        assert answer.flags & frames.SUFFICIENT
        # a request keeps what it refers to
        assert client.ask(Frame(Kind.DROP, 1)).kind == Kind.DONE
        works(client, memory)
        assert client.ask(Frame(Kind.FORGET, 1)).kind == Kind.DONE
        assert "has not been defined" in client.refused(Frame(Kind.RUN, 1)).reason


def test_shared_memory_in_calls(service: Service) -> None:
    """The numbers are good for every call of the session."""
    with ready(service) as (client, handle, memory):
        memory.bytes[:8] = np.array([5, 6], np.float32).view(np.uint8)
        call = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=client.raw.session, prepared_model=handle, request=request()
        )
        client.raw.prepared_model.ExecuteSynchronously(call)
        np.testing.assert_array_equal(memory.bytes[64:72].view(np.float32), [6, 7])
        client.socket.close()
        assert until(lambda: _refused(client.raw, call), 10), "what a connection shared outlives it"


def _refused(raw: Raw, call: prepared_model_pb2.ExecuteSynchronouslyRequest) -> bool:
    import grpc

    try:
        raw.prepared_model.ExecuteSynchronously(call)
    except grpc.RpcError:
        return True
    return False


def test_a_burst_is_busy_on_every_path(service: Service) -> None:
    with ready(service) as (client, handle, memory):
        message = prepared_model_pb2.PreparedModelRequest(session=client.raw.session, prepared_model=handle)
        burst = client.raw.prepared_model.ConfigureExecutionBurst(message).burst
        assert client.ask(define(burst, request())).kind == Kind.DONE
        works(client, memory)


def test_another_session_cannot_use_it(service: Service) -> None:
    with ready(service) as (_, _, _), raw_session(service.target) as other:
        client = Client(other)
        assert "no memory 1" in client.refused(define(prepared(other), request())).reason
        client.socket.close()


def test_a_session_needs_its_secret(service: Service) -> None:
    with raw_session(service.target) as raw, raw_session(service.target) as other:
        for session, secret in ((raw.session, other.opened.data_secret), (raw.session, bytes(16))):
            with pytest.raises(OSError):
                data_socket.connect(raw.opened.data_socket, session, secret)
        with pytest.raises(nnhal.SessionLostError):
            data_socket.connect(raw.opened.data_socket, bytes(16), raw.opened.data_secret)


def test_connections_of_a_session_are_counted(service: Service) -> None:
    with raw_session(service.target) as raw:
        limit = raw.opened.limits["session_data_connections"]
        clients = [Client(raw) for _ in range(limit)]
        with pytest.raises(nnhal.HalError) as caught:
            Client(raw)
        assert caught.value.limit == "session_data_connections"
        clients.pop().socket.close()

        def again() -> bool:
            try:
                clients.append(Client(raw))
            except nnhal.HalError:
                return False
            return True

        assert until(again, 10)
        for client in clients:
            client.socket.close()


# ---- Clients that lie, change their minds or stall ----------------------------------------------------------


def test_sizes_that_are_not_true(service: Service) -> None:
    with ready(service) as (client, handle, memory):
        for message in (
            request(offset=4090),
            request(output=4096),
            request(offset=2**40),
            request(offset=-8),
            request(number=2),
            request(offset=60, output=64),  # on the same bytes
        ):
            assert client.refused(define(handle, message)).status == ErrorStatus.INVALID_ARGUMENT
        for area in ((1, 0, 4097), (1, -1, 10), (1, 10, -1), (2, 0, 10), (1, 2**60, 2**60)):
            assert client.refused(define(handle, request(), area)).status == ErrorStatus.INVALID_ARGUMENT
        assert client.refused(define(handle[:-1] + b"?", request())).kind == ErrorKind.UNKNOWN_HANDLE
        broken = Frame(Kind.DEFINE, 1, body=Definition(handle, 0, 0, 0, b"\xff\xff").pack())
        assert "decoded" in client.refused(broken).reason
        assert client.ask(define(handle, request())).kind == Kind.DONE
        works(client, memory)


def test_memory_that_can_be_cut_off(service: Service) -> None:
    with ready(service) as (client, handle, memory):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, 0)
        unsealed = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, 4096)
        assert "F_SEAL_SHRINK" in client.refused(Frame(Kind.SHARE, 2), unsealed).reason
        fcntl.fcntl(unsealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        assert client.ask(Frame(Kind.SHARE, 2), unsealed).kind == Kind.DONE
        assert "number 2 is taken" in client.refused(Frame(Kind.SHARE, 2), unsealed).reason
        assert "0 descriptors" in client.refused(Frame(Kind.SHARE, 3)).reason
        assert "2 descriptors" in client.refused(Frame(Kind.SHARE, 3), unsealed, unsealed).reason
        # pages may be taken out of it: the service then reads zeros
        assert client.ask(define(handle, request())).kind == Kind.DONE
        subprocess.run(
            ["fallocate", "--punch-hole", "--length", "4096", f"/proc/{os.getpid()}/fd/{memory.descriptor}"], check=True
        )
        works(client, memory)
        os.close(unsealed)


@pytest.mark.parametrize("backends", ["CpuAcc,CpuRef", "CpuRef"])
def test_values_that_change_while_they_are_used(tmp_path: Path, backends: str) -> None:
    """Each answer is that of some values; and a model whose values steer memory accesses stays inside its memory."""
    service = start(tmp_path, "--backends", backends)
    with nnhal.connect(service.target) as device:
        table, indices = tensor(T.TENSOR_FLOAT32, (8, 4)), tensor(T.TENSOR_INT32, (64,))
        axis = int32(0)
        out = tensor(T.TENSOR_FLOAT32, (64, 4))
        gather = model_of(Op.GATHER, [(table, 0), axis, (indices, 0)], [out], constants=False)
        with device.prepare(gather).result() as prepared:
            values = np.arange(32, dtype=np.float32).reshape(8, 4)
            prepared.execute([values, np.zeros(64, np.int32)])
            local = device._connection.local
            assert local is not None
            (lane,) = local._pool._idle
            (defined,) = lane._defined.values()
            place = defined.inputs[1]
            assert place is not None
            over = threading.Event()

            def rewrite() -> None:
                while not over.is_set():
                    place[:] = 2**30
                    place[:] = 3

            writer = threading.Thread(target=rewrite)
            writer.start()
            try:
                for _ in range(300):
                    try:
                        got = prepared.execute([values, np.full(64, 3, np.int32)])[0]
                    except nnhal.HalError as error:
                        assert error.status in (ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT)
                    else:
                        np.testing.assert_array_equal(got, np.broadcast_to(values[3], (64, 4)))
            finally:
                over.set()
                writer.join()
            np.testing.assert_array_equal(prepared.execute([values, np.full(64, 3, np.int32)])[0][0], values[3])
    assert stop(service) == 0
    assert not service.logged("Traceback")


def test_frames_that_are_none(own: Service) -> None:
    """Each ends its own connection at most."""
    rng = random.Random(5)
    with raw_session(own.target) as raw, ready(own) as (good, handle, memory):
        assert good.ask(define(handle, request())).kind == Kind.DONE
        for _ in range(200):
            client = Client(raw)
            kind = rng.choice([*Kind, 0, 200])
            packet = bytearray(Frame(kind, rng.choice((0, 1, 2**32 - 1)), 0, rng.choice((-1, 0, 2**62))).pack())
            packet += rng.randbytes(rng.choice((0, 3, 40, 4000)))
            for _ in range(rng.randrange(3)):
                packet[rng.randrange(len(packet))] = rng.randrange(256)
            client.socket.send(packet[: rng.choice((len(packet), len(packet), 5))])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
            client.socket.close()
        client = Client(raw)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)
        client.socket.send(bytes(frames.MAX_BYTES + 1))
        assert client.ended()
        client.socket.close()
        client = Client(raw)
        socket.send_fds(client.socket, [Frame(Kind.SHARE, 1).pack()], [0] * 50)
        assert client.ended()
        client.socket.close()
        works(good, memory)
    assert not own.logged("Traceback")


def test_who_says_nothing(own: Service) -> None:
    with raw_session(own.target) as raw:
        silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        silent.connect("\0" + raw.opened.data_socket[1:])
        silent.settimeout(30)
        assert silent.recv(10) == b""
        silent.close()


def test_who_does_not_read_answers(own: Service) -> None:
    """It loses its connection; others do not wait for it."""
    with ready(own) as (good, handle, memory), raw_session(own.target) as raw:
        assert good.ask(define(handle, request())).kind == Kind.DONE
        client = Client(raw)
        client.socket.setblocking(False)
        until_full = time.monotonic() + 30
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < until_full:
                try:
                    client.socket.send(Frame(Kind.FORGET, 1).pack())
                except BlockingIOError:
                    works(good, memory)
                    time.sleep(0.05)
        client.socket.close()
        works(good, memory)
