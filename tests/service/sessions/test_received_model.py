"""Received models: limits, pauses while they are read, and digests of the bytes that the driver reads."""

import fcntl
import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest

from nnhal import ModelBuilder, wire
from nnhal.client.core.cache import model_digest
from nnhal.errors import HalError, general_failure
from nnhal.types import Memory, Model, UnsetUnion
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from nnhal_driver.scheduling.paced_check import proceed
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.sessions import received_model
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.received_model import ReceivedModel, ReceivedModelReader
from nnhal_service.sessions.session import Session
from nnhal_service.shm.memory_mapping import map_memory

FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
WEIGHTS = np.arange(3000, dtype=np.float32)
BYTES = WEIGHTS.view(np.uint8)


def adding(weights: "np.ndarray[tuple[int], np.dtype[np.float32]]" = WEIGHTS) -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [weights.size])
    b.output(b.add(Op.ADD, x, weights, 0, output=x.description))
    return replace(b.build(), pools=(Memory.of(weights),))


MODEL = adding()


@pytest.fixture
def session() -> Session:
    return Session("test", ANONYMOUS)


def message(pool: types_pb2.Memory) -> types_pb2.Model:
    """Return the message of MODEL with another form of its pool."""
    return wire.model_message(MODEL, lambda _: pool)


def mapped(session: Session, memory: MemoryObject, offset: int = 0, length: int | None = None) -> types_pb2.Memory:
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=session.add(memory), offset=offset, length=length))


def uploaded(sha256: bytes) -> MemoryObject:
    memory = MemoryObject(BYTES.copy(), sha256)
    if sha256:
        memory.seal(BYTES.size)
    return memory


def share(session: Session, number: int, data: bytes, seals: int) -> types_pb2.Memory:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, FIXED | seals)
        session.shared.add_memory(number, map_memory(descriptor, Limits()))
    finally:
        os.close(descriptor)
    return types_pb2.Memory(shared=number)


def large_message(count: int) -> types_pb2.Model:
    """Return a message of a model with many operations of two arguments and an operand each."""
    main = types_pb2.Subgraph(
        operands=[types_pb2.Operand()] * count, operations=[types_pb2.Operation(inputs=[0], outputs=[0])] * count
    )
    return types_pb2.Model(main=main, referenced=[main])


def test_size_counts_operands_and_arguments(session: Session) -> None:
    assert ReceivedModel(session, large_message(20), Limits()).size == 2 * 3 * 20


def test_large_model_is_read_in_steps(session: Session) -> None:
    turns: list[int] = []
    reader = ReceivedModel(session, large_message(5000), Limits())
    given = reader.read(lambda: turns.append(0))
    assert len(given.model.main.operations) == len(given.model.referenced[0].operands) == 5000
    assert len(turns) >= 8 * 5000 / 1000  # operands and operations of two subgraphs, counted and converted


def test_check_ends_a_reading(session: Session) -> None:
    def stop() -> None:
        raise general_failure("cancelled")

    with pytest.raises(HalError, match="cancelled"):
        ReceivedModel(session, large_message(1), Limits()).read(stop)


def test_limits_of_a_model(session: Session) -> None:
    with pytest.raises(HalError, match="limit arguments"):
        ReceivedModel(session, large_message(10), Limits({"arguments": 39})).read(proceed)
    with pytest.raises(HalError, match="limit operation_arguments"):
        ReceivedModel(session, large_message(10), Limits({"operation_arguments": 1})).read(proceed)


def test_inline_pools(session: Session) -> None:
    model, digest = ReceivedModelReader().read(session, wire.model_message(MODEL), proceed)
    assert digest == model_digest(MODEL) and model.main == MODEL.main


def test_unset_pool(session: Session) -> None:
    unset = replace(MODEL, pools=(UnsetUnion(),))
    assert ReceivedModelReader().read(session, wire.model_message(unset), proceed)[1] == model_digest(unset)


def test_uploaded_memory_is_not_hashed_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = mapped(session, uploaded(hashlib.sha256(BYTES.data).digest()))
    monkeypatch.setattr(received_model, "_sha256", lambda _: pytest.fail("hashed again"))
    assert ReceivedModelReader().read(session, message(memory), proceed)[1] == model_digest(MODEL)


def test_memory_that_the_client_can_change_has_no_digest(session: Session) -> None:
    reader = ReceivedModelReader()
    for pool in (
        mapped(session, uploaded(b"")),
        mapped(session, uploaded(hashlib.sha256(BYTES.data).digest()), offset=4),
        mapped(session, uploaded(hashlib.sha256(BYTES.data).digest()), length=4),
        share(session, 1, BYTES.tobytes(), 0),
    ):
        assert reader.read(session, message(pool), proceed)[1] == b""


def test_sealed_memfd_is_hashed_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, pool = ReceivedModelReader(), share(session, 1, BYTES.tobytes(), fcntl.F_SEAL_WRITE)
    assert reader.read(session, message(pool), proceed)[1] == model_digest(MODEL)
    with monkeypatch.context() as patch:
        patch.setattr(received_model, "_sha256", lambda _: pytest.fail("hashed again"))
        assert reader.read(session, message(pool), proceed)[1] == model_digest(MODEL)
    session.shared.drop(1)
    other = WEIGHTS + 1
    share(session, 1, other.tobytes(), fcntl.F_SEAL_WRITE)
    assert reader.read(session, message(pool), proceed)[1] == model_digest(adding(other))
