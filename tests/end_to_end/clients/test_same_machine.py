"""Shared memory between a client and a real service on one machine, and clients that misuse it."""

import fcntl
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.shm import data_socket
from nnhal.client.shm.data_socket import SharedMemory
from nnhal.shm import protocol
from nnhal.shm.protocol import Definition, Packet, PacketKind
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import error_pb2, prepared_model_pb2, session_pb2, types_pb2
from tests.concurrency import run_concurrently, wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.raw_client import RawSession, add_chain, open_raw_session, prepare_request
from tests.end_to_end.support.service_process import Service, start_service, stop_running, stop_service

ONES = np.ones(4, np.float32)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """Yield a service that only one test uses."""
    running = start_service(tmp_path, NNHAL_SESSION_GRACE_S="0.1", NNHAL_IDLE_THREAD_S="0.3")
    yield running
    assert stop_service(running) == 0


# ---- Client ---------------------------------------------------------------------------------------------


def forbid_grpc_executions(monkeypatch: pytest.MonkeyPatch, device: nnhal.Device) -> None:
    def fail(request: object) -> None:
        raise AssertionError("a tensor went through gRPC")

    monkeypatch.setattr(device._connection, "run", fail)
    monkeypatch.setattr(device._connection.prepared_model, "ExecuteSynchronously", fail)


def test_tensors_do_not_pass_through_grpc(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with nnhal.connect(service.target) as device:
        forbid_grpc_executions(monkeypatch, device)
        with device.prepare(ADD).result() as prepared:
            for size in (4, 100_000, 4, 3_000_000):
                x = np.arange(size, dtype=np.float32)
                np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)
                np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)
            with pytest.raises(nnhal.HalError) as caught:
                prepared.execute([ONES, ONES], deadline=0)
            assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
            assert prepared.execute([ONES, ONES], measure_timing=True).timing.time_on_device_ns > 0


def test_shared_memory_can_be_turned_off(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with nnhal.connect(service.target, transport="grpc") as device:
        forbid_grpc_executions(monkeypatch, device)
        with device.prepare(ADD).result() as prepared, pytest.raises(AssertionError, match="went through gRPC"):
            prepared.execute([ONES, ONES])


def test_more_threads_than_channels(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(ADD).result() as prepared:

        def work(number: int) -> None:
            for i in range(20):
                x = np.full(1 + (number * i) % 2000, number * i, np.float32)
                np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)

        run_concurrently(20, work)


async def test_asyncio_client(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(ADD)
        monkeypatch.setattr(device._connection.prepared_model, "ExecuteSynchronously", None)
        for size in (4, 100_000, 4):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal((await prepared.execute([x, x]))[0], 2 * x)


def test_closed_model_is_unknown(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(ADD).result()
        prepared.execute([ONES, ONES])
        prepared.close()
        with pytest.raises(nnhal.HalError) as caught:
            prepared.execute([ONES, ONES])
        assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE
        with device.prepare(ADD).result() as other:
            np.testing.assert_array_equal(other.execute([ONES, ONES])[0], 2 * ONES)


def test_execution_continues_in_another_session(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(ADD).result()
        prepared.execute([ONES, ONES])
        lost = device._connection.session
        device._connection._sessions.Close(session_pb2.CloseRequest(session=lost))
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], ONES + ONES)
        assert device._connection.session != lost


def test_service_that_is_killed_during_an_execution(tmp_path: Path) -> None:
    service = start_service(tmp_path)
    device = nnhal.connect(service.target)
    prepared = device.prepare(ADD).result()
    prepared.execute([ONES, ONES])
    device._session._timeout = 4  # only now: a busy service may need longer to respond
    stop_running(service.pid)
    threading.Timer(0.3, service.process.kill).start()  # any time is right: the service is stopped
    with pytest.raises(nnhal.DeadObjectError):
        prepared.execute([ONES, ONES])
    stop_service(service)
    with pytest.raises(nnhal.DeadObjectError):
        prepared.execute([ONES, ONES])
    device.close()


def test_other_users_execute_without_shared_memory(own_service: Service) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    code = (
        "import os, sys, numpy as np, nnhal\n"
        "from tests.end_to_end.support.models import ADD\n"
        "connect = nnhal.connect  # imports the client while its files can be read\n"
        "os.setuid(65534)\n"
        "device = connect(sys.argv[1]); x = np.ones(3, np.float32)\n"
        "print(device.prepare(ADD).result().execute([x, x])[0].tolist()); device.close()"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, own_service.target],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert child.stdout.strip() == "[2.0, 2.0, 2.0]", child.stderr
    assert own_service.logged("user 65534 may not")


# ---- Protocol -------------------------------------------------------------------------------------------


class Client:
    """Data connection that sends and receives single packets."""

    def __init__(self, raw: RawSession) -> None:
        self.raw = raw
        self.socket = data_socket.connect(raw.opened.data_socket, raw.session, raw.opened.data_secret)
        self.socket.settimeout(60)

    def call(self, packet: Packet, *descriptors: int) -> Packet:
        """Send a packet, and return the response."""
        data_socket.send_packet(self.socket, packet.pack(), descriptors)
        response = self.socket.recv(protocol.MAX_BYTES)
        assert response, "the service closed the connection"
        return Packet.unpack(response)

    def error(self, packet: Packet, *descriptors: int) -> error_pb2.ErrorDetail:
        """Send an invalid packet, and return the error."""
        response = self.call(packet, *descriptors)
        assert response.kind == PacketKind.ERROR
        return error_pb2.ErrorDetail.FromString(response.body)

    def is_closed_by_service(self) -> bool:
        """Skip responses until the service closes the connection. Fail if it does not."""
        try:
            while self.socket.recv(protocol.MAX_BYTES):
                pass
        except ConnectionResetError:
            pass
        return True


def prepare_chain(raw: RawSession) -> bytes:
    """Prepare a model that adds one to an input of shape [2], and return its handle."""
    return list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify.prepared_model


def request(offset: int = 0, output: int = 64, number: int = 1) -> types_pb2.Request:
    """Return a request with input and output in the shared memory with a number."""
    location = types_pb2.DataLocation
    return types_pb2.Request(
        inputs=[types_pb2.RequestArgument(location=location(offset=offset, length=8))],
        outputs=[types_pb2.RequestArgument(location=location(offset=output, length=8))],
        pools=[types_pb2.RequestMemoryPool(pool=types_pb2.Memory(shared=number))],
    )


def define(handle: bytes, message: types_pb2.Request, area: tuple[int, int, int] = (0, 0, 0)) -> Packet:
    return Packet(PacketKind.DEFINE, 1, body=Definition(handle, *area, message.SerializeToString()).pack())


@contextmanager
def sharing_client(service: Service) -> Iterator[tuple[Client, bytes, SharedMemory]]:
    """Yield a client that shares 4096 bytes as number 1, its model, and the memory."""
    with open_raw_session(service.target) as raw:
        client = Client(raw)
        memory = SharedMemory(4096)
        assert client.call(Packet(PacketKind.SHARE, 1), memory.descriptor).kind == PacketKind.DONE
        try:
            yield client, prepare_chain(raw), memory
        finally:
            os.close(memory.descriptor)
            client.socket.close()


def assert_works(client: Client, memory: SharedMemory, value: float = 3.0) -> None:
    memory.bytes[:8] = np.full(2, value, np.float32).view(np.uint8)
    assert client.call(Packet(PacketKind.RUN, 1)).kind == PacketKind.RESULT
    np.testing.assert_array_equal(memory.bytes[64:72].view(np.float32), np.full(2, value + 1))


def test_defined_request_runs(service: Service) -> None:
    with sharing_client(service) as (client, handle, memory):
        assert client.call(define(handle, request())).kind == PacketKind.DONE
        for value in range(5):
            assert_works(client, memory, value)
        response = client.call(Packet(PacketKind.RUN, 1, flags=protocol.MEASURE, first=60 * 10**9))
        assert response.first > 0
        assert response.flags & protocol.SUFFICIENT
        # a defined request keeps its memory
        assert client.call(Packet(PacketKind.DROP, 1)).kind == PacketKind.DONE
        assert_works(client, memory)
        assert client.call(Packet(PacketKind.FORGET, 1)).kind == PacketKind.DONE
        assert "has not been defined" in client.error(Packet(PacketKind.RUN, 1)).reason


def test_shared_memory_in_calls(service: Service) -> None:
    """The numbers of shared memory are valid in every call of the session."""
    with sharing_client(service) as (client, handle, memory):
        memory.bytes[:8] = np.array([5, 6], np.float32).view(np.uint8)
        call = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=client.raw.session, prepared_model=handle, request=request()
        )
        client.raw.prepared_model.ExecuteSynchronously(call)
        np.testing.assert_array_equal(memory.bytes[64:72].view(np.float32), [6, 7])
        client.socket.close()
        assert wait_until(lambda: fails(client.raw, call)), "shared memory outlives its connection"


def fails(raw: RawSession, call: prepared_model_pb2.ExecuteSynchronouslyRequest) -> bool:
    try:
        raw.prepared_model.ExecuteSynchronously(call)
    except grpc.RpcError:
        return True
    return False


def test_burst_runs_through_shared_memory(service: Service) -> None:
    with sharing_client(service) as (client, handle, memory):
        message = prepared_model_pb2.PreparedModelRequest(session=client.raw.session, prepared_model=handle)
        burst = client.raw.prepared_model.ConfigureExecutionBurst(message).burst
        assert client.call(define(burst, request())).kind == PacketKind.DONE
        assert_works(client, memory)


def test_other_sessions_cannot_use_shared_memory(service: Service) -> None:
    with sharing_client(service) as (_, _, _), open_raw_session(service.target) as other:
        client = Client(other)
        assert "no memory with number 1" in client.error(define(prepare_chain(other), request())).reason
        client.socket.close()


def test_data_connection_needs_the_secret_of_the_session(service: Service) -> None:
    with open_raw_session(service.target) as raw, open_raw_session(service.target) as other:
        for session, secret in ((raw.session, other.opened.data_secret), (raw.session, bytes(16))):
            with pytest.raises(OSError):
                data_socket.connect(raw.opened.data_socket, session, secret)
        with pytest.raises(nnhal.SessionLostError):
            data_socket.connect(raw.opened.data_socket, bytes(16), raw.opened.data_secret)


def test_data_connections_of_a_session_are_limited(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        limit = raw.opened.limits["session_data_connections"]
        clients = [Client(raw) for _ in range(limit)]
        with pytest.raises(nnhal.HalError) as caught:
            Client(raw)
        assert caught.value.limit == "session_data_connections"
        clients.pop().socket.close()

        def can_connect() -> bool:
            try:
                clients.append(Client(raw))
            except nnhal.HalError:
                return False
            return True

        assert wait_until(can_connect)
        for client in clients:
            client.socket.close()


# ---- Invalid packets, changing values and stalled clients ---------------------------------------------------------


def test_invalid_definitions_are_rejected(service: Service) -> None:
    with sharing_client(service) as (client, handle, memory):
        for message in (
            request(offset=4090),
            request(output=4096),
            request(offset=2**40),
            request(offset=-8),
            request(number=2),
            request(offset=60, output=64),  # input and output overlap
        ):
            assert client.error(define(handle, message)).status == ErrorStatus.INVALID_ARGUMENT
        for area in ((1, 0, 4097), (1, -1, 10), (1, 10, -1), (2, 0, 10), (1, 2**60, 2**60)):
            assert client.error(define(handle, request(), area)).status == ErrorStatus.INVALID_ARGUMENT
        assert client.error(define(handle[:-1] + b"?", request())).kind == ErrorKind.UNKNOWN_HANDLE
        broken = Packet(PacketKind.DEFINE, 1, body=Definition(handle, 0, 0, 0, b"\xff\xff").pack())
        assert "decoded" in client.error(broken).reason
        assert client.call(define(handle, request())).kind == PacketKind.DONE
        assert_works(client, memory)


def test_memory_must_be_sealed_against_shrinking(service: Service) -> None:
    with sharing_client(service) as (client, handle, memory):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, 0)
        unsealed = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, 4096)
        assert "F_SEAL_SHRINK" in client.error(Packet(PacketKind.SHARE, 2), unsealed).reason
        fcntl.fcntl(unsealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        assert client.call(Packet(PacketKind.SHARE, 2), unsealed).kind == PacketKind.DONE
        assert "number 2 is already in use" in client.error(Packet(PacketKind.SHARE, 2), unsealed).reason
        assert "0 descriptors" in client.error(Packet(PacketKind.SHARE, 3)).reason
        assert "2 descriptors" in client.error(Packet(PacketKind.SHARE, 3), unsealed, unsealed).reason
        # a client may remove pages: the service then reads zeros
        assert client.call(define(handle, request())).kind == PacketKind.DONE
        subprocess.run(
            ["fallocate", "--punch-hole", "--length", "4096", f"/proc/{os.getpid()}/fd/{memory.descriptor}"], check=True
        )
        assert_works(client, memory)
        os.close(unsealed)


@pytest.mark.parametrize("backends", ["CpuAcc,CpuRef", "CpuRef"])
def test_values_that_change_during_executions(tmp_path: Path, backends: str) -> None:
    """Each output belongs to some values, and indices never lead outside of the memory."""
    service = start_service(tmp_path, "--backends", backends)
    with nnhal.connect(service.target) as device:
        table, indices = tensor(T.TENSOR_FLOAT32, (8, 4)), tensor(T.TENSOR_INT32, (64,))
        axis = int32(0)
        out = tensor(T.TENSOR_FLOAT32, (64, 4))
        gather = model_of(Op.GATHER, [(table, 0), axis, (indices, 0)], [out], constants=False)
        with device.prepare(gather).result() as prepared:
            values = np.arange(32, dtype=np.float32).reshape(8, 4)
            prepared.execute([values, np.zeros(64, np.int32)])
            shm = device._connection.shm
            assert shm is not None
            (channel,) = shm._pool._idle
            (defined,) = channel._defined.values()
            indices_view = defined.inputs[1]
            assert indices_view is not None
            ended = threading.Event()

            def rewrite() -> None:
                while not ended.is_set():
                    indices_view[:] = 2**30
                    indices_view[:] = 3

            writer = threading.Thread(target=rewrite)
            writer.start()
            try:
                for _ in range(300):
                    try:
                        output = prepared.execute([values, np.full(64, 3, np.int32)])[0]
                    except nnhal.HalError as error:
                        assert error.status in (ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT)
                    else:
                        np.testing.assert_array_equal(output, np.broadcast_to(values[3], (64, 4)))
            finally:
                ended.set()
                writer.join()
            np.testing.assert_array_equal(prepared.execute([values, np.full(64, 3, np.int32)])[0][0], values[3])
    assert stop_service(service) == 0
    assert not service.logged("Traceback")


def test_invalid_packets(own_service: Service) -> None:
    """Each invalid packet closes at most its own_service connection."""
    rng = random.Random(5)
    with open_raw_session(own_service.target) as raw, sharing_client(own_service) as (good, handle, memory):
        assert good.call(define(handle, request())).kind == PacketKind.DONE
        for _ in range(200):
            client = Client(raw)
            kind = rng.choice([*PacketKind, 0, 200])
            packet = bytearray(Packet(kind, rng.choice((0, 1, 2**32 - 1)), 0, rng.choice((-1, 0, 2**62))).pack())
            packet += rng.randbytes(rng.choice((0, 3, 40, 4000)))
            for _ in range(rng.randrange(3)):
                packet[rng.randrange(len(packet))] = rng.randrange(256)
            client.socket.send(packet[: rng.choice((len(packet), len(packet), 5))])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.is_closed_by_service()
            client.socket.close()
        client = Client(raw)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)
        client.socket.send(bytes(protocol.MAX_BYTES + 1))
        assert client.is_closed_by_service()
        client.socket.close()
        client = Client(raw)
        socket.send_fds(client.socket, [Packet(PacketKind.SHARE, 1).pack()], [0] * 50)
        assert client.is_closed_by_service()
        client.socket.close()
        assert_works(good, memory)
    assert not own_service.logged("Traceback")


@pytest.mark.slow
def test_silent_connection_is_closed(own_service: Service) -> None:
    with open_raw_session(own_service.target) as raw:
        silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        silent.connect("\0" + raw.opened.data_socket[1:])
        silent.settimeout(60)
        assert silent.recv(10) == b""
        silent.close()


@pytest.mark.slow
def test_client_that_does_not_read_responses(own_service: Service) -> None:
    """The service closes the connection of a client that does not read, and others are not delayed."""
    with sharing_client(own_service) as (good, handle, memory), open_raw_session(own_service.target) as raw:
        assert good.call(define(handle, request())).kind == PacketKind.DONE
        client = Client(raw)
        client.socket.setblocking(False)

        def is_closed() -> bool:
            try:
                while True:
                    client.socket.send(Packet(PacketKind.FORGET, 1).pack())
            except BlockingIOError:
                assert_works(good, memory)
                return False
            except (BrokenPipeError, ConnectionResetError):
                return True

        assert wait_until(is_closed)
        client.socket.close()
        assert_works(good, memory)
