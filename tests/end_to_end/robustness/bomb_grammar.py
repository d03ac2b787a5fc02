"""Grammar of bombs: small messages that cost a service much memory or time, generated from a seed.

Each kind is a function that explodes one bomb in a session. It raises the error of the service, or returns if the
service could afford the bomb.
"""

import fcntl
import os
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from nnhal.client.shm import data_socket
from nnhal.errors import HalError
from nnhal.shm.protocol import MAX_BYTES, Packet, PacketKind
from nnhal.types import ErrorStatus, OperandType, OperationType
from nnhal.v1 import device_pb2, enums_pb2, memory_pb2, session_pb2, types_pb2
from nnhal.wire import model_message
from tests.driver.one_operation import boolean, int32, model_of, tensor
from tests.end_to_end.robustness.hostile_models import overlapping_windows
from tests.end_to_end.support.raw_client import (
    F32,
    ModelWriter,
    RawSession,
    error_detail,
    execute_request,
    prepare_request,
)

TIMEOUT_S = 60
INT32S = enums_pb2.OPERAND_TYPE_TENSOR_INT32
_CHUNK = bytes(2**20)
_FROM_GRPC = "message larger than max"
"""Text of the error of gRPC for the limit message_bytes."""


@dataclass(frozen=True)
class BombKind:
    """Kind of bomb.

    Attributes:
        texts: texts, one of which the reason of its error has: the name of a limit, or what is wrong.
        affordable: whether the service may answer some of them.
    """

    explode: Callable[[RawSession, random.Random], object]
    texts: tuple[str, ...]
    affordable: bool


KINDS: dict[str, BombKind] = {}


def bomb(*texts: str, affordable: bool = False) -> Callable[[Callable[[RawSession, random.Random], object]], None]:
    """Register a kind of bomb."""

    def register(explode: Callable[[RawSession, random.Random], object]) -> None:
        KINDS[explode.__name__] = BombKind(explode, texts, affordable)

    return register


def outcome(kind: BombKind, raw: RawSession, seed: int) -> tuple[ErrorStatus, str]:
    """Explode a bomb. Return the status and the reason of its error; NONE if the service answers."""
    try:
        kind.explode(raw, random.Random(seed))
    except HalError as error:
        return ErrorStatus(error.status), error.reason
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        if _FROM_GRPC in (error.details() or ""):
            return ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, _FROM_GRPC
        detail = error_detail(error)
        return ErrorStatus(detail.status), detail.reason
    return ErrorStatus.NONE, ""


def prepare(raw: RawSession, model: types_pb2.Model) -> bytes:
    """Prepare a model, and return its handle. Raises the error of its outcome."""
    *_, event = raw.device.PrepareModel(prepare_request(raw, model), timeout=TIMEOUT_S)
    notify: device_pb2.Notify = event.notify
    if notify.status:
        raise HalError(ErrorStatus(notify.status), notify.reason)
    return notify.prepared_model


def _execute(raw: RawSession, model: types_pb2.Model) -> None:
    """Prepare and execute a model without inputs."""
    request = execute_request(raw, prepare(raw, model), [])
    request.request.pools[0].pool.inline = b"\0"
    raw.prepared_model.ExecuteSynchronously(request, timeout=TIMEOUT_S)


def _release(raw: RawSession, handles: Sequence[bytes]) -> session_pb2.ReleaseRequest:
    return session_pb2.ReleaseRequest(session=raw.session, handles=handles)


def _field(number: int, content: bytes) -> bytes:
    """Return an encoded field with bytes or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def _send(raw: RawSession, method: str, message: bytes, compression: grpc.Compression | None = None) -> None:
    call: Callable[..., Any] = raw.channel.unary_unary(f"/nnhal.v1.{method}")
    if method.endswith("PrepareModel"):
        stream: Callable[..., Any] = raw.channel.unary_stream(f"/nnhal.v1.{method}")
        call = lambda *arguments, **options: list(stream(*arguments, **options))  # noqa: E731
    call(message, timeout=TIMEOUT_S, compression=compression)


# ---- Messages -------------------------------------------------------------------------------------------


@bomb(_FROM_GRPC)
def compressed_message(raw: RawSession, rng: random.Random) -> None:
    """Send a message of some kilobytes that inflates to 8 to 128 MiB."""
    size = rng.randrange(2**23, 2**27)
    method = rng.choice(("Device/PrepareModel", "PreparedModel/Run", "Session/Release", "Device/GetType"))
    _send(raw, method, _field(1, raw.session) + _field(15, bytes(size)), grpc.Compression.Gzip)


@bomb("cannot be decoded")
def nested_groups(raw: RawSession, rng: random.Random) -> None:
    """Send unknown fields within unknown fields, 10,000 to 2 million deep."""
    depth = rng.randrange(10_000, 2_000_000)
    _send(raw, "Session/Release", _field(1, raw.session) + b"\x7b" * depth + b"\x7c" * rng.choice((0, depth)))


_LISTS = (
    ("Device/PrepareModel", (3, 1, 1)),  # operands
    ("Device/GetSupportedOperations", (3, 1, 2)),  # operations
    ("Device/PrepareModel", (3, 2)),  # subgraphs
    ("PreparedModel/ExecuteSynchronously", (3, 3)),  # pools
    ("PreparedModel/ExecuteSynchronously", (3, 1)),  # inputs
    ("PreparedModel/Define", (3, 1)),
    ("PreparedModel/Run", (3,)),  # values
    ("PreparedModel/ExecuteFenced", (4,)),  # fences
    ("Session/Release", (2,)),  # handles
    ("Cache/Clear", (2,)),  # tokens
)
"""Methods, and the path of fields that leads to a list."""


@bomb("operands", "operations", "subgraphs", "pools", "arguments", "elements")
def empty_elements(raw: RawSession, rng: random.Random) -> None:
    """Send up to two million elements of two bytes each, which become objects."""
    method, path = rng.choice(_LISTS)
    content = _varint(path[-1] << 3 | 2) + b"\0"
    content *= rng.randrange(1_000_100, 2_090_000)
    for number in reversed(path[:-1]):
        content = _field(number, content)
    _send(raw, method, _field(1, raw.session) + content)


@bomb("arguments")
def many_arguments(raw: RawSession, rng: random.Random) -> None:
    """Prepare operations with more than a million arguments of one byte."""
    writer = ModelWriter()
    value = writer.input((2,))
    for part in (rng.randrange(1, 500_000), 1_000_000):
        writer.apply("ADD", [value] * part, (2,), last=True)
    prepare(raw, writer.model)


# ---- Tensors --------------------------------------------------------------------------------------------


@bomb("tensor_bytes", "service_memory_bytes", "not enough memory for the execution", "does not fit 32 bits")
def huge_shape(raw: RawSession, rng: random.Random) -> None:
    """Execute an operation whose output has 1 GiB to 16 TiB."""
    elements = 2 ** rng.uniform(28, 42)
    rows = int(2 ** rng.uniform(12, 24))
    size = np.array([min(2**31 - 1, rows), min(2**31 - 1, int(elements / rows))], np.int32)
    writer = ModelWriter()
    shape = writer.constant(INT32S, size)
    if rng.random() < 0.5:
        one = writer.constant(enums_pb2.OPERAND_TYPE_FLOAT32, np.float32(1))  # type: ignore[arg-type]
        writer.apply("FILL", [shape, one], (0, 0), last=True)
    else:
        writer.apply("TILE", [writer.constant(F32, np.ones((1, 1), np.float32)), shape], (0, 0), last=True)
    _execute(raw, writer.model)


@bomb("not enough memory for the execution", affordable=True)
def huge_temporary(raw: RawSession, rng: random.Random) -> None:
    """Execute a convolution of small tensors that needs 64 MiB to 16 GiB in between."""
    wide = int(2 ** rng.uniform(12, 16)) - 1
    image, filter_, bias = (
        (tensor(OperandType.TENSOR_FLOAT32, shape), np.ones(shape)) for shape in ((1, 1, 1, 1), (1, 2, 2, 1), (1,))
    )
    numbers, dilation = map(int32, (*[wide // 2] * 4, wide, wide, 0)), map(int32, (wide // 2, wide // 2))
    inputs = [image, filter_, bias, *numbers, boolean(False), *dilation]
    _execute(raw, model_message(model_of(OperationType.CONV_2D, inputs, [tensor(OperandType.TENSOR_FLOAT32)])))


@bomb("this device takes at most 64")
def huge_axes(raw: RawSession, rng: random.Random) -> None:
    """Prepare with axes, a permutation or a shape in untouched memory of up to 128 MiB."""
    elements = int(2 ** rng.uniform(10, 25))
    memory = raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=4 * elements)).memory
    writer = ModelWriter()
    value = writer.input((2, 2))
    axes = writer.constant(INT32S, np.zeros(1, np.int32))
    operand = writer.model.main.operands[axes]
    operand.dimensions[0], operand.location.length = elements, 4 * elements
    operand.lifetime = enums_pb2.OPERAND_LIFE_TIME_CONSTANT_POOL
    writer.model.pools.add().mapped.memory = memory
    operation = rng.choice(("TRANSPOSE", "SQUEEZE", "RESHAPE", "MEAN", "TILE"))
    keep = [writer.number(1)] if operation == "MEAN" else []
    writer.apply(operation, [value, axes, *keep], (0, 0), last=True)
    try:
        prepare(raw, writer.model)
    finally:
        raw.sessions.Release(_release(raw, [memory]))


@bomb("service_memory_bytes", affordable=True)
def overlapping_constants(raw: RawSession, rng: random.Random) -> None:
    """Prepare with windows on the same bytes, which would be 640 MB if each were copied."""
    prepare(raw, overlapping_windows())


# ---- Memory ---------------------------------------------------------------------------------------------


@bomb("pool_bytes", "service_memory_bytes")
def sparse_memfd(raw: RawSession, rng: random.Random) -> None:
    """Share a memfd of 1 GiB to 4 EiB, of which nothing is allocated."""
    descriptor = os.memfd_create("bomb", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, int(2 ** rng.uniform(30, 62)))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        with data_socket.connect(raw.opened.data_socket, raw.session, raw.opened.data_secret) as connection:
            connection.settimeout(TIMEOUT_S)
            socket.send_fds(connection, [Packet(PacketKind.SHARE, 1).pack()], [descriptor])
            data_socket.raise_for_error(Packet.unpack(connection.recv(MAX_BYTES)))
    finally:
        os.close(descriptor)


@bomb("lie outside a memory of", "cannot allocate")
def endless_upload(raw: RawSession, rng: random.Random) -> None:
    """Upload more and more chunks to an object of some megabytes."""
    size = rng.randrange(1, 4) * 2**20
    memory = raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=size)).memory

    def chunks() -> Iterator[memory_pb2.UploadRequest]:
        offset = 0
        while True:
            yield memory_pb2.UploadRequest(session=raw.session, memory=memory, offset=offset, data=_CHUNK)
            offset += len(_CHUNK)

    try:
        raw.memory.Upload(chunks(), timeout=TIMEOUT_S)
    finally:
        raw.sessions.Release(_release(raw, [memory]))


@bomb("objects", "service_memory_bytes")
def many_objects(raw: RawSession, rng: random.Random) -> None:
    """Create objects of 1 byte to 16 MiB, until the service refuses one."""
    size = int(2 ** rng.uniform(0, 24))
    handles = []
    try:
        while True:
            request = memory_pb2.CreateMemoryRequest(session=raw.session, size=size)
            handles.append(raw.memory.Create(request, timeout=TIMEOUT_S).memory)
    finally:
        raw.sessions.Release(_release(raw, handles))
