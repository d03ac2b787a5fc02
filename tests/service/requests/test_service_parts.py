"""Begin of an execution: its deadline, its owner and its meter."""

import pytest

from nnhal.types import OMITTED
from nnhal_driver.scheduling.deadline import now_ns, to_absolute
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.metrics.calls import CallMeter, MeteredCall, ModelLabels
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.recording.recorder import Recorder
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry
from nnhal_service.settings import Settings

MODEL = ModelLabels("nnhal", b"\x01\x23")
HOUR_NS = 3600 * 10**9


@pytest.fixture
def parts() -> ServiceParts:
    limits = Limits()
    return ServiceParts(SessionRegistry(1), limits, MemoryQuota(limits), CallMeter(), Recorder(Settings(), {}))


def begun(parts: ServiceParts, session: Session, call: MeteredCall, deadline_ns: int = OMITTED) -> MeteredCall:
    parts.begin_execution(call, session, MODEL, deadline_ns)
    return call


def test_work_belongs_to_the_session(parts: ServiceParts) -> None:
    session = Session("s1", ANONYMOUS)
    assert begun(parts, session, MeteredCall("unary")).owner == session.owner


def test_earlier_deadline_counts(parts: ServiceParts) -> None:
    session, soon = Session("s1", ANONYMOUS), now_ns() + HOUR_NS
    assert begun(parts, session, MeteredCall("unary")).deadline_ns == OMITTED
    assert begun(parts, session, MeteredCall("unary", deadline_ns=soon)).deadline_ns == soon
    assert begun(parts, session, MeteredCall("unary", deadline_ns=soon), 2 * HOUR_NS).deadline_ns == soon
    assert soon <= begun(parts, session, MeteredCall("unary"), HOUR_NS).deadline_ns <= to_absolute(HOUR_NS)
    assert begun(parts, session, MeteredCall("unary", deadline_ns=soon), 0).deadline_ns < soon


def test_invalid_deadline_is_left_to_the_driver(parts: ServiceParts) -> None:
    call = MeteredCall("unary", deadline_ns=now_ns() + HOUR_NS)
    assert begun(parts, Session("s1", ANONYMOUS), call, -2).deadline_ns == -2


def test_execution_counts_when_it_ends(parts: ServiceParts) -> None:
    session = Session("s1", ANONYMOUS)
    with begun(parts, session, MeteredCall("unary", 100)):
        pass
    with pytest.raises(RuntimeError), begun(parts, session, MeteredCall("stream", 100)):
        raise RuntimeError
    snapshot = Snapshot()
    parts.calls.collect(snapshot)
    labels = ("anonymous", "nnhal", "0123", "", "")
    assert snapshot.values["nnhal_calls"] == {
        (*labels, "unary", "ok"): 1,
        (*labels, "stream", "general_failure"): 1,
    }
    assert snapshot.values["nnhal_received_bytes"][*labels, "unary"] == 100
