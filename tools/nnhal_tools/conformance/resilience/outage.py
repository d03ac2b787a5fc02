"""End of a process of the service while sessions are at work, and the return of the service."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nnhal.types import ErrorKind
from nnhal.v1 import session_pb2
from nnhal_tools.conformance.check import (
    CheckFailed,
    CheckRecorder,
    ConnectionLost,
    NotServiceSpecific,
    Skipped,
    UnsupportedCase,
)
from nnhal_tools.conformance.device.calls import WATCHDOG_S, invoke
from nnhal_tools.conformance.device.control import KILL, RESTART, STOP
from nnhal_tools.conformance.device.data_connection import is_data_socket_reachable, process_of_service
from nnhal_tools.conformance.device.options import PREPARE_MODEL
from nnhal_tools.conformance.device.results import CallOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.resilience.models import AddChain, random_values
from nnhal_tools.conformance.resilience.session import SessionAtWork, Work

RETURN, LOST, OTHERS = "RESIL-14", "RESIL-15", "RESIL-19"
"""Ids that every end of a process evaluates."""

ATTEMPTS = 5
"""Number of kills until one ends a session of the check. The command may kill any worker of the service."""
SETTLE_S = 0.5
"""A step that began so long after the first session has ended, in seconds, and succeeds is one of another process."""
POLL_S = 0.02


@dataclass(frozen=True)
class Outage:
    """Service that responds again after the end of a process, with a new session.

    `seconds` is the time from the end of the command to the first answer to the new session.
    """

    fresh: Target
    ended: Sequence[SessionAtWork]
    others: Sequence[SessionAtWork]
    seconds: float


def require_data_socket(target: Target) -> None:
    """Raise Skipped if the data socket is on another machine. The session of the check may be lost."""
    with target.new_session() as session:
        if not is_data_socket_reachable(session):
            raise Skipped("", "the data socket is not on this machine")


@contextmanager
def outage(
    target: Target, recorder: CheckRecorder, id_: str, works: Mapping[str, Work], command: str = KILL
) -> Iterator[Outage]:
    """Kill a process of the service while sessions are at work, and yield the service that is back.

    Every call in progress must end soon: by UNAVAILABLE or with a right result. The service must respond again. The
    sessions of the process must be lost, and others must go on.

    Args:
        target: the session of the check, which may be lost.
        recorder: the recorder of the check.
        id_: the id of calls in progress.
        works: the work of each session, by name.
        command: the option with the command: KILL or STOP.

    Raises:
        Skipped: there is no command, or it ends no session.
    """
    target.control.require(command)
    try:
        for _ in range(ATTEMPTS):
            with ExitStack() as stack:
                sessions = _start(target, stack, works)
                target.control.run(command, id_, process_of_service(sessions[0].target))
                done = time.monotonic()
                # a process that is asked to stop may take its time
                _await_end(sessions, done + (target.control.recovery_s if command == STOP else SETTLE_S))
                for session in sessions:
                    _await_fate(recorder, id_, session, target.control.recovery_s)
                if any(session.ended.is_set() for session in sessions):
                    yield _judge(recorder, id_, target, sessions, command, done, stack)
                    return
        raise Skipped("", f"the command ended no session, {ATTEMPTS} times")
    finally:
        _await_ping(target)


def _start(target: Target, stack: ExitStack, works: Mapping[str, Work]) -> list[SessionAtWork]:
    """Start all sessions, and wait until they are at work."""
    sessions = []
    for name, work in works.items():
        opened = stack.enter_context(_open_within(target, target.control.recovery_s))
        session = SessionAtWork(name, opened, work)
        stack.callback(session.close)
        sessions.append(session)
    for session in sessions:
        if not session.at_work.wait(WATCHDOG_S):
            raise NotServiceSpecific(f"{session.name}: no answer within {WATCHDOG_S:.0f} s")
        if session.error is not None:
            raise session.error
    return sessions


def _await_end(sessions: Sequence[SessionAtWork], deadline: float) -> None:
    """Wait until the first session has ended."""
    _poll(lambda: any(session.ended.is_set() for session in sessions), deadline)


def _await_fate(recorder: CheckRecorder, id_: str, session: SessionAtWork, limit: float) -> None:
    """Wait until a session has ended with its call in progress, or has gone on for a while, at most `limit` seconds."""
    began = time.monotonic()

    def is_decided() -> bool:
        if session.finished.is_set():
            return session.ended.is_set()
        goes_on = time.monotonic() if session.is_endless else session.last_success
        return not session.ended.is_set() and goes_on > began + SETTLE_S

    decided = _poll(is_decided, began + limit)
    if not decided and session.finished.is_set():
        if isinstance(session.error, CheckFailed):
            raise session.error
        stimulus = f"{session.name}, in a session whose stream goes on"
        raise CheckFailed(OTHERS, stimulus, "success", session.error)
    stimulus = f"{session.name}, when the process ends"
    recorder.expect(decided, stimulus, f"an answer or an error within {limit:g} s", "neither", check=id_)


def _judge(
    recorder: CheckRecorder,
    id_: str,
    target: Target,
    sessions: Sequence[SessionAtWork],
    command: str,
    done: float,
    stack: ExitStack,
) -> Outage:
    """Check the errors of the calls in progress, the return of the service, and the sessions."""
    recorder.mark(RETURN)
    fresh = stack.enter_context(_reopen(target, done))
    seconds = time.monotonic() - done
    _expect_serving(recorder, fresh)
    ended = [session for session in sessions if session.ended.is_set()]
    others = [session for session in sessions if not session.ended.is_set()]
    for session in ended:
        _expect_connection_lost(recorder, id_, session, command)
        _expect_session_lost(recorder, fresh, session)
    for session in others:
        session.stop()
        recorder.expect(
            session.error is None, f"{session.name}, in another process", "success", session.error, check=OTHERS
        )
    return Outage(fresh, ended, others, seconds)


def _expect_connection_lost(recorder: CheckRecorder, id_: str, session: SessionAtWork, command: str) -> None:
    error = session.error
    if not isinstance(error, NotServiceSpecific | UnsupportedCase):
        raise error or AssertionError("a session that has ended has an error")
    # a gRPC server that stops may cancel calls that it has received, but not begun
    is_dropped = command == STOP and not session.is_endless and getattr(error, "code", "") == "CANCELLED"
    stimulus, expected = f"{session.name}, when the process ends", "UNAVAILABLE, DEVICE_UNAVAILABLE or a right answer"
    recorder.expect(isinstance(error, ConnectionLost) or is_dropped, stimulus, expected, error, check=id_)


# ---- The return of the service ----------------------------------------------------------------------------


def _reopen(target: Target, done: float) -> Target:
    """Open a new session as soon as the service accepts it. The operator restarts a service that does not."""
    limit, stimulus = target.control.recovery_s, "a new session after the end of a process"
    try:
        return _open_within(target, done + limit - time.monotonic())
    except NotServiceSpecific as error:
        if not target.control.restart_command:
            raise CheckFailed(RETURN, stimulus, f"success within {limit:g} s", error) from None
    target.control.run(RESTART, RETURN)
    try:
        return _open_within(target, limit)
    except NotServiceSpecific as error:
        raise CheckFailed(RETURN, f"{stimulus} and {RESTART}", f"success within {limit:g} s", error) from None


def _open_within(target: Target, limit: float) -> Target:
    """Open a session as soon as the service accepts it. An earlier process may still be stopping.

    Raises:
        NotServiceSpecific: the service does not accept it within the limit, in seconds.
    """
    deadline = time.monotonic() + limit
    while True:
        try:
            return target.new_session()
        except NotServiceSpecific:
            if time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _expect_serving(recorder: CheckRecorder, fresh: Target) -> None:
    """Check the health, if the service reports it."""
    health = health_pb2_grpc.HealthStub(fresh.channel)
    answers: list[object] = []

    def is_serving() -> bool:
        try:
            answers.append(health.Check(health_pb2.HealthCheckRequest(), timeout=WATCHDOG_S).status)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            answers.append(error.code())
        return answers[-1] in (health_pb2.HealthCheckResponse.SERVING, grpc.StatusCode.UNIMPLEMENTED)

    serving = _poll(is_serving, time.monotonic() + fresh.control.recovery_s)
    recorder.expect(
        serving, "the health of the service after the end of a process", "SERVING", answers[-1], check=RETURN
    )


def _expect_session_lost(recorder: CheckRecorder, fresh: Target, session: SessionAtWork) -> None:
    """Check that a session is lost for every kind of call, on a connection to the service that is back."""
    chain = AddChain.random()
    calls: dict[str, dict[str, Any]] = {
        "Session.Open": {},
        "Device.GetSupportedOperations": {"model": chain.model},
        "Device.PrepareModel": {"model": chain.model, **PREPARE_MODEL.fields()},
        "PreparedModel.ExecuteSynchronously": {"request": chain.request(random_values()), "prepared_model": bytes(16)},
        "MemoryService.Create": {"size": 1},
    }
    for name, fields in calls.items():
        request = fresh.request(name, **fields, session=session.target.session)
        outcome = _outcome(fresh.rpc(name), request)
        stimulus = f"{type(request).__name__} in a session whose process has ended"
        recorder.expect(outcome.kind == ErrorKind.SESSION_LOST, stimulus, "SESSION_LOST", outcome, check=LOST)


def _outcome(method: Callable[..., Any], request: Message) -> CallOutcome:
    """Make a call, and return its outcome. A session that is open counts as success."""

    def call(request: Message, timeout: float) -> None:
        answers = method(request, timeout=timeout)
        if isinstance(answers, grpc.Call):
            for answer in answers:  # type: ignore[attr-defined]
                if isinstance(answer, session_pb2.SessionEvent):
                    break
            answers.cancel()

    return invoke(call, request)[0]


def _await_ping(target: Target) -> None:
    """Wait until the session that the runner pings has a connection again. The next check reports if it has not."""

    def responds() -> bool:
        with suppress(NotServiceSpecific):
            target.ping()
            return True
        return False

    _poll(responds, time.monotonic() + target.control.recovery_s)


def _poll(condition: Callable[[], bool], deadline: float) -> bool:
    """Poll a condition. Return False if it does not hold before the deadline."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
