"""The paths over the data socket: what they use, what they find, what they leave behind, and where they are skipped."""

import fcntl
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nnhal import frames
from nnhal.embedded import EmbeddedService
from nnhal.frames import Frame, Kind, Place
from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2, types_pb2
from tools.conformance.check import NotServiceSpecific, Skipped, Status
from tools.conformance.data_connection import CONSTANT, SEALS, SealedMemory, connected, is_here, said
from tools.conformance.paths import CALLS, LOCAL, calls
from tools.conformance.run import Where, run, tasks
from tools.conformance.samples import named, prepared, request_of
from tools.conformance.selftest.relay import DataHook, Exchange, Relay
from tools.conformance.target import Executed, Run, Target
from tools.conformance.vectors import Case

RELAY = "nnhal-relay"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with closing(EmbeddedService()) as service:
        yield service.target


@pytest.fixture
def target(address: str) -> Iterator[Target]:
    with Target(address) as target:
        yield target


@contextmanager
def relayed(target: Target, hook: DataHook) -> Iterator[None]:
    """The target's data socket has a relay before it."""
    with Relay(target.opened, hook) as relay:
        name, target.opened.data_socket = target.opened.data_socket, relay.name
        yield
        target.opened.data_socket = name


def executed(target: Target, code: str, name: str = "split_int32") -> Executed:
    with prepared(target, name) as model:
        return CALLS[code](target, model, request_of(name), Run(measure=True))


def right(done: Executed, name: str = "split_int32") -> bool:
    wanted = [output.array.tobytes() for output in named(name).outputs]
    return [None if output is None else output.tobytes() for output in done.outputs] == wanted


# ---- What is used -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", LOCAL)
def test_all_is_said_in_frames(target: Target, code: str) -> None:
    requests: list[Frame] = []
    answers: list[Frame | None] = []
    seals: list[int] = []

    def look(exchange: Exchange, request: Frame) -> Frame | None:
        requests.append(request)
        seals.extend(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) for descriptor in exchange.descriptors)
        answers.append(exchange.forward(request))
        return answers[-1]

    with relayed(target, look):
        done = executed(target, code)
    assert right(done) and done.before is not None and right(done.before)
    kinds = [Kind(request.kind) for request in requests]
    assert kinds == [Kind.HELLO, Kind.SHARE, Kind.SHARE, Kind.DEFINE, Kind.RUN, Kind.RUN, Kind.DROP, Kind.DROP]
    message = types_pb2.Request.FromString(frames.Definition.unpack(requests[3].body).request)
    assert [pool.pool.WhichOneof("memory") for pool in message.pools] == (
        ["shared", "shared"] if code == "SYNC-LOCAL" else ["shared", None]
    )
    assert seals == ([SEALS, SEALS] if code == "SYNC-LOCAL" else [CONSTANT, SEALS])
    for answer in answers[4:6]:
        assert answer is not None
        places = [output.place for output in frames.unpack_outputs(answer.body, len(done.outputs))]
        last = Place.REGION if code == "SYNC-LOCAL" else Place.MEMORY
        assert places == [last and Place.AREA] * (len(places) - 1) + [last]


@pytest.mark.parametrize("code", LOCAL)
def test_nothing_is_left_behind(target: Target, code: str) -> None:
    executed(target, code)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        executed(target, code)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_relay_ends_its_threads_and_connections(target: Target) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with relayed(target, Exchange.forward), connected(target) as connection:
        memory = SealedMemory(b"1234")
        answer, _ = connection.share(memory)
        assert answer.status == ErrorStatus.NONE
        memory.close()
    assert RELAY not in [thread.name for thread in threading.enumerate()]
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


# ---- What is found ------------------------------------------------------------------------------------------


def ended(exchange: Exchange, request: Frame) -> Frame | None:
    return None if request.kind == Kind.RUN else exchange.forward(request)


def another_number(exchange: Exchange, request: Frame) -> Frame | None:
    answer = exchange.forward(request)
    return answer and answer._replace(number=request.number + 1)


def another_kind(exchange: Exchange, request: Frame) -> Frame | None:
    answer = exchange.forward(request)
    return answer and answer._replace(kind=Kind.DONE if answer.kind == Kind.RESULT else answer.kind)


def cut_off(exchange: Exchange, request: Frame) -> Frame | None:
    answer = exchange.forward(request)
    return answer and answer._replace(body=answer.body[:-20])


def nowhere(exchange: Exchange, request: Frame) -> Frame | None:
    answer = exchange.forward(request)
    if answer is None or answer.kind != Kind.RESULT:
        return answer
    outputs = frames.unpack_outputs(answer.body, len(named("split_int32").outputs))
    return answer._replace(body=frames.pack_outputs([output._replace(place=7) for output in outputs]))


def no_error(exchange: Exchange, request: Frame) -> Frame | None:
    return Frame(Kind.ERROR, request.number)


@pytest.mark.parametrize("code", LOCAL)
@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (ended, "ended the data connection at a RUN"),
        (another_number, "is answered as"),
        (another_kind, "an answer of kind 64, not RESULT or ERROR"),
        (cut_off, "a RESULT of"),
        (nowhere, "an output at place 7"),
        (no_error, "an ERROR with the status NONE"),
    ],
)
def test_an_answer_that_is_none_is_not_taken(target: Target, code: str, hook: DataHook, reason: str) -> None:
    with relayed(target, hook), pytest.raises(NotServiceSpecific, match=reason):
        executed(target, code)


@pytest.mark.parametrize(
    ("refused", "status"), [(Kind.SHARE, ErrorStatus.GENERAL_FAILURE), (Kind.DEFINE, ErrorStatus.DEVICE_UNAVAILABLE)]
)
def test_a_refusal_is_how_the_execution_ended(target: Target, refused: Kind, status: ErrorStatus) -> None:
    detail = error_pb2.ErrorDetail(status=ErrorStatus.DEVICE_UNAVAILABLE, reason="why")  # type: ignore[arg-type]

    def refuse(exchange: Exchange, request: Frame) -> Frame | None:
        answer = exchange.forward(request)
        return Frame(Kind.ERROR, request.number, body=detail.SerializeToString()) if request.kind == refused else answer

    with relayed(target, refuse):
        done = executed(target, "SYNC-LOCAL")
    assert done.answer.status == status
    assert ("why" in done.answer.reason) == all(step.holds for step in done.steps)


def test_an_error_is_told(target: Target) -> None:
    with connected(target) as connection:
        answer = said(connection.ask(Frame(Kind.RUN, 5)), Kind.RESULT)
        assert answer.status == ErrorStatus.INVALID_ARGUMENT and "request 5" in answer.reason


# ---- Where it is skipped ------------------------------------------------------------------------------------


def skipped(target: Target) -> str:
    assert not is_here(target) and not set(LOCAL) & set(calls(target))
    with pytest.raises(Skipped) as caught:
        executed(target, "SYNC-LOCAL")
    return str(caught.value)


def test_services_on_other_machines_are_skipped(target: Target) -> None:
    assert is_here(target) and calls(target) == CALLS
    target.opened.data_socket = f"@nnhal-{secrets.token_hex(16)}"
    assert "is not on this machine" in skipped(target)
    target.opened.data_socket = ""
    assert "has no data socket" in skipped(target)


def test_services_of_other_users_are_skipped(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with Relay(target.opened, lambda exchange, request: None) as relay:
        target.opened.data_socket = relay.name
        with pytest.raises(NotServiceSpecific, match="HELLO with the session's secret"):
            executed(target, "SYNC-LOCAL")
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert "another user's" in skipped(target)


def test_a_path_of_a_file_will_do(target: Target, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        target.opened.data_socket = str(tmp_path / "socket")

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(NotServiceSpecific):
            is_here(target)
        thread.join()


def test_a_run_says_that_they_were_skipped(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ = Where.open

    def elsewhere(where: Where) -> Target:
        target = open_(where)
        target.opened.data_socket = ""
        return target

    monkeypatch.setattr(Where, "open", elsewhere)
    results = list(run(Where(address), tasks(("generated", "request"), [named("add_float")]), jobs=1))
    assert {r.path for r in results if r.status is Status.SKIPPED} == set(LOCAL)
    assert {r.status for r in results if r.path not in LOCAL} == {Status.PASSED}


# ---- When they are tried ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["generated", "request"])
def test_they_are_tried_on_the_built_in_set_and_where_they_are_named(address: str, suite: str) -> None:
    built_in = named("add_float")
    other = Case(built_in.data | {"spec": "V1_0/add"})

    def tried(case: Case, *paths: str) -> set[str]:
        return {result.path for result in run(Where(address, paths=paths), tasks((suite,), [case]), jobs=1)}

    assert tried(built_in) >= set(LOCAL)
    assert tried(other) == tried(built_in) - set(LOCAL)
    assert tried(other, "SYNC-LOCAL") & set(LOCAL) == {"SYNC-LOCAL"}
