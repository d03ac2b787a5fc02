"""Paths over the data socket: packets, detected failures, cleanup and skipped results."""

import fcntl
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nnhal.embedded import EmbeddedService
from nnhal.shm import protocol
from nnhal.shm.protocol import OutputLocation, Packet, PacketKind
from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2, types_pb2
from nnhal_tools.conformance.check import NotServiceSpecific, Skipped, Status
from nnhal_tools.conformance.device.data_connection import (
    READ_ONLY_SEALS,
    REQUIRED_SEALS,
    SealedMemory,
    is_data_socket_reachable,
    open_connection,
    outcome_of_packet,
)
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS, LOCAL_PATHS, reachable_calls
from nnhal_tools.conformance.runner import TargetConfig, plan_tasks, run_tasks
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, prepared_model
from tests.tools.conformance.selftest.relay import DataHook, Relay, RelayedRequest

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
    """Put a relay in front of the data socket of the target, within the context."""
    with Relay(target.opened, hook) as relay:
        name, target.opened.data_socket = target.opened.data_socket, relay.socket_name
        yield
        target.opened.data_socket = name


def run_path(target: Target, code: str, name: str = "split_int32") -> ExecutionOutcome:
    with prepared_model(target, name) as model:
        return CALLS[code](target, model, builtin_request(name), RunOptions(measure=True))


def has_expected_outputs(execution: ExecutionOutcome, name: str = "split_int32") -> bool:
    expected = [output.array.tobytes() for output in builtin_case(name).outputs]
    return [None if output is None else output.tobytes() for output in execution.outputs] == expected


# ---- Packets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", LOCAL_PATHS)
def test_packets_of_a_path(target: Target, code: str) -> None:
    requests: list[Packet] = []
    answers: list[Packet | None] = []
    seals: list[int] = []

    def record(exchange: RelayedRequest, request: Packet) -> Packet | None:
        requests.append(request)
        seals.extend(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) for descriptor in exchange.descriptors)
        answers.append(exchange.forward(request))
        return answers[-1]

    with relayed(target, record):
        execution = run_path(target, code)
    assert has_expected_outputs(execution)
    assert execution.first_run is not None and has_expected_outputs(execution.first_run)
    kinds = [PacketKind(request.kind) for request in requests]
    assert kinds == [
        PacketKind.HELLO,
        PacketKind.SHARE,
        PacketKind.SHARE,
        PacketKind.DEFINE,
        PacketKind.RUN,
        PacketKind.RUN,
        PacketKind.DROP,
        PacketKind.DROP,
    ]
    message = types_pb2.Request.FromString(protocol.Definition.unpack(requests[3].body).request)
    assert [pool.pool.WhichOneof("memory") for pool in message.pools] == (
        ["shared", "shared"] if code == "SYNC-LOCAL" else ["shared", None]
    )
    assert seals == ([REQUIRED_SEALS, REQUIRED_SEALS] if code == "SYNC-LOCAL" else [READ_ONLY_SEALS, REQUIRED_SEALS])
    for answer in answers[4:6]:
        assert answer is not None
        locations = [output.location for output in protocol.unpack_outputs(answer.body, len(execution.outputs))]
        last = OutputLocation.REGION if code == "SYNC-LOCAL" else OutputLocation.MEMORY
        assert locations == [last and OutputLocation.AREA] * (len(locations) - 1) + [last]


@pytest.mark.parametrize("code", LOCAL_PATHS)
def test_path_closes_its_descriptors(target: Target, code: str) -> None:
    run_path(target, code)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        run_path(target, code)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors  # what an earlier test has left may end meanwhile


def test_relay_ends_its_threads_and_connections(target: Target) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with relayed(target, RelayedRequest.forward), open_connection(target) as connection:
        memory = SealedMemory(b"1234")
        answer, _ = connection.share(memory)
        assert answer.status == ErrorStatus.NONE
        memory.close()
    assert RELAY not in [thread.name for thread in threading.enumerate()]
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


# ---- Detected failures --------------------------------------------------------------------------------------


def end_connection(exchange: RelayedRequest, request: Packet) -> Packet | None:
    return None if request.kind == PacketKind.RUN else exchange.forward(request)


def wrong_number(exchange: RelayedRequest, request: Packet) -> Packet | None:
    answer = exchange.forward(request)
    return answer and answer._replace(number=request.number + 1)


def wrong_kind(exchange: RelayedRequest, request: Packet) -> Packet | None:
    answer = exchange.forward(request)
    return answer and answer._replace(kind=PacketKind.DONE if answer.kind == PacketKind.RESULT else answer.kind)


def truncate_body(exchange: RelayedRequest, request: Packet) -> Packet | None:
    answer = exchange.forward(request)
    return answer and answer._replace(body=answer.body[:-20])


def unknown_location(exchange: RelayedRequest, request: Packet) -> Packet | None:
    answer = exchange.forward(request)
    if answer is None or answer.kind != PacketKind.RESULT:
        return answer
    outputs = protocol.unpack_outputs(answer.body, len(builtin_case("split_int32").outputs))
    return answer._replace(body=protocol.pack_outputs([output._replace(location=7) for output in outputs]))


def error_with_status_none(exchange: RelayedRequest, request: Packet) -> Packet | None:
    return Packet(PacketKind.ERROR, request.number)


@pytest.mark.parametrize("code", LOCAL_PATHS)
@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (end_connection, "ended the data connection at a RUN"),
        (wrong_number, "the answer to SHARE \\d+ has the number"),
        (wrong_kind, "answer of kind 64; expected RESULT or ERROR"),
        (truncate_body, "a RESULT of"),
        (unknown_location, "unknown output location 7"),
        (error_with_status_none, "ERROR with the status NONE"),
    ],
)
def test_malformed_answer_is_detected(target: Target, code: str, hook: DataHook, reason: str) -> None:
    with relayed(target, hook), pytest.raises(NotServiceSpecific, match=reason):
        run_path(target, code)


@pytest.mark.parametrize(
    ("kind", "status"),
    [(PacketKind.SHARE, ErrorStatus.GENERAL_FAILURE), (PacketKind.DEFINE, ErrorStatus.DEVICE_UNAVAILABLE)],
)
def test_error_is_the_outcome_of_the_execution(target: Target, kind: PacketKind, status: ErrorStatus) -> None:
    detail = error_pb2.ErrorDetail(status=ErrorStatus.DEVICE_UNAVAILABLE, reason="why")  # type: ignore[arg-type]

    def fail(exchange: RelayedRequest, request: Packet) -> Packet | None:
        answer = exchange.forward(request)
        return (
            Packet(PacketKind.ERROR, request.number, body=detail.SerializeToString())
            if request.kind == kind
            else answer
        )

    with relayed(target, fail):
        execution = run_path(target, "SYNC-LOCAL")
    assert execution.outcome.status == status
    assert ("why" in execution.outcome.reason) == all(step.holds for step in execution.steps)


def test_error_has_status_and_reason(target: Target) -> None:
    with open_connection(target) as connection:
        answer = outcome_of_packet(connection.exchange(Packet(PacketKind.RUN, 5)), PacketKind.RESULT)
        assert answer.status == ErrorStatus.INVALID_ARGUMENT and "request 5" in answer.reason


# ---- Skipped results ----------------------------------------------------------------------------------------


def skip_reason(target: Target) -> str:
    assert not is_data_socket_reachable(target) and not set(LOCAL_PATHS) & set(reachable_calls(target))
    with pytest.raises(Skipped) as caught:
        run_path(target, "SYNC-LOCAL")
    return str(caught.value)


def test_services_on_other_machines_are_skipped(target: Target) -> None:
    assert is_data_socket_reachable(target) and reachable_calls(target) == CALLS
    target.opened.data_socket = f"@nnhal-{secrets.token_hex(16)}"
    assert "is not on this machine" in skip_reason(target)
    target.opened.data_socket = ""
    assert "has no data socket" in skip_reason(target)


def test_services_of_other_users_are_skipped(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with Relay(target.opened, lambda exchange, request: None) as relay:
        target.opened.data_socket = relay.socket_name
        with pytest.raises(NotServiceSpecific, match="HELLO with the secret of the session"):
            run_path(target, "SYNC-LOCAL")
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert "belongs to another user" in skip_reason(target)


def test_data_socket_may_be_a_file(target: Target, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        target.opened.data_socket = str(tmp_path / "socket")

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(NotServiceSpecific):
            is_data_socket_reachable(target)
        thread.join()


def test_results_without_a_data_socket_are_skipped(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original_open = TargetConfig.open

    def open_without_data_socket(config: TargetConfig) -> Target:
        target = original_open(config)
        target.opened.data_socket = ""
        return target

    monkeypatch.setattr(TargetConfig, "open", open_without_data_socket)
    results = list(
        run_tasks(TargetConfig(address), plan_tasks(("generated", "request"), [builtin_case("add_float")]), jobs=1)
    )
    assert {r.path for r in results if r.status is Status.SKIPPED} == set(LOCAL_PATHS)
    assert {r.status for r in results if r.path not in LOCAL_PATHS} == {Status.PASSED}


# ---- Selection ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["generated", "request"])
def test_local_paths_run_on_the_built_in_set_or_by_name(address: str, suite: str) -> None:
    built_in = builtin_case("add_float")
    other = Case(built_in.data | {"spec": "V1_0/add"})

    def paths_of_results(case: Case, *paths: str) -> set[str]:
        return {
            result.path
            for result in run_tasks(TargetConfig(address, paths=paths), plan_tasks((suite,), [case]), jobs=1)
        }

    assert paths_of_results(built_in) >= set(LOCAL_PATHS)
    assert paths_of_results(other) == paths_of_results(built_in) - set(LOCAL_PATHS)
    assert paths_of_results(other, "SYNC-LOCAL") & set(LOCAL_PATHS) == {"SYNC-LOCAL"}
