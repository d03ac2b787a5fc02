"""Traces of gRPC's handshakes, in the forms of its oldest and its newest supported version."""

import logging

import pytest

from nnhal_service.tls.failed_handshakes import FailedHandshakes
from nnhal_service.tls.grpc_trace import HandshakeTrace, prepare_trace

_HEAD = "I1128 13:59:37.617680   14486 "
_ARGUMENTS = (
    "args={endpoint=0x7f0d64001b60, args={grpc.internal.client_channel_call_destination=0x7f0d78592320, "
    "grpc.internal.endpoint_local_address=ipv4:127.0.0.1:45552, grpc.internal.endpoint_peer_address=PEER, "
    "grpc.internal.security_connector=0x56454329cd90, grpc.internal.server_credentials=0x56454328ea10, "
    "grpc.resource_quota=0x564543290210}, read_buffer.Length()=0, exit_early=0}"
)
_SSL = "UNKNOWN: Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1:SSL routines:OPENSSL_internal:"
PEER = "ipv4:192.0.2.1:59736"


def record(error: str, *, is_new: bool, peer: str = PEER, shutdown: str = "false") -> list[str]:
    """Return the lines about a handshake."""
    end = f" shutdown={shutdown} index=2, {_ARGUMENTS.replace('PEER', peer)}"
    begin = f"{_HEAD}handshaker.cc:155] CallNextHandshakerLocked: error={error}"
    repeated = f"{_HEAD}channel_trace.h:396] handshake manager 0x7f0d64002040: Failed with error: {error}"
    location = ["=== Source Location Trace: ===", "src/core/util/status_helper.cc:68"]
    return [begin, *location, end, repeated, *location] if is_new else [begin + end, repeated]


def failures(lines: list[str]) -> list[tuple[str, str]]:
    """Return what a trace reports, and check that all lines belong to it."""
    noted: list[tuple[str, str]] = []
    trace = HandshakeTrace(lambda peer, error: noted.append((peer, error)))
    assert all(map(trace.take, lines))
    return noted


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize(
    ("error", "shutdown", "reason"),
    [
        (_SSL + "HTTP_REQUEST: Invalid certificate verification context: OK", "false", "not_tls"),
        (_SSL + "CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "false", "expired"),
        (_SSL + "NO_SHARED_CIPHER: Invalid certificate verification context: OK", "false", "other"),
        ("UNAVAILABLE: Handshake read failed (Socket closed)", "false", "closed"),
        ("UNAVAILABLE: Handshake read failed (Endpoint closing)", "true", "timeout"),
    ],
)
def test_failures(error: str, shutdown: str, reason: str, is_new: bool) -> None:
    lines = record(error, is_new=is_new, shutdown=shutdown)
    assert failures(lines) == [(PEER, error)]
    counts: list[str] = []
    handshakes = FailedHandshakes("grpc", lambda metric, port, why, amount=1: counts.extend([why] * amount))
    handshakes.note(PEER, error)
    assert counts == [reason]


def test_what_succeeds_or_is_no_handshake_of_a_client() -> None:
    steps = [
        f"{_HEAD}handshaker.cc:80] handshake_manager 0x7f34280020e0: adding handshaker security [0x7f] at index 1",
        *record("OK", is_new=False),
        f"{_HEAD}channel_trace.h:396] handshake manager 0x7f34280020e0:  calling handshaker security at index 1",
        f"{_HEAD}ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: error:1",
        f"{_HEAD}trace.cc:91] gRPC Tracers: handshaker",
    ]
    own = [line.replace("server_credentials", "channel_credentials") for line in record("UNKNOWN: x", is_new=True)]
    assert failures([*steps, *own, *record("OK", is_new=False)]) == []


@pytest.mark.parametrize(("text", "peer"), [("ipv6:%5B2001:db8::1%5D:4", "ipv6:[2001:db8::1]:4"), ("", "")])
def test_addresses_are_readable_or_unknown(text: str, peer: str) -> None:
    assert failures(record("UNKNOWN: x", is_new=True, peer=text)) == [(peer, "UNKNOWN: x")]


@pytest.mark.parametrize(
    "line",
    [
        "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.",
        "I0000 00:00:1732801177.617680   14486 engine.cc:80] of another library with the same log",
        "E1123 01:33:43.041630   23020 chttp2.cc:1403] goaway",
        "handshaker.cc:155] CallNextHandshakerLocked: error=UNKNOWN: of a plug-in",
    ],
)
def test_other_lines_are_left_to_the_log(line: str) -> None:
    noted: list[str] = []
    trace = HandshakeTrace(lambda peer, error: noted.append(peer))
    begin, *rest = record("UNKNOWN: x", is_new=True)
    assert trace.take(begin)
    assert not trace.take(line)
    assert all(map(trace.take, rest))
    assert noted == [PEER]


def test_an_operator_who_wants_traces_has_them_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_TRACE", "http")
    monkeypatch.setenv("GRPC_VERBOSITY", "DEBUG")
    prepare_trace()
    noted: list[str] = []
    trace = HandshakeTrace(lambda peer, error: noted.append(peer))
    assert not any(map(trace.take, record("UNKNOWN: x", is_new=True)))
    assert noted == [PEER]


def test_the_audit_log_has_a_line_for_a_host(caplog: pytest.LogCaptureFixture) -> None:
    handshakes = FailedHandshakes("grpc", lambda *labels, amount=1: None)
    with caplog.at_level(logging.INFO):
        for port in range(1000):
            handshakes.note(f"ipv4:192.0.2.1:{port}", "certificate has expired: CERTIFICATE_VERIFY_FAILED: expired")
    (line,) = [record.nnhal_fields for record in caplog.records]  # type: ignore[attr-defined]
    assert line == {
        "action": "handshake",
        "by": "ipv4:192.0.2.1",
        "result": "failed: the certificate of the client has expired (grpc port)",
    }
