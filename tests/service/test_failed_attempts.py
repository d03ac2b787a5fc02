"""Failed attempts: all are counted, and few are logged."""

import pytest

from nnhal_service import failed_attempts
from nnhal_service.failed_attempts import INTERVAL_S, FailedAttempts


def test_each_failure_counts_and_a_host_has_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now, counts = 0.0, list[str]()
    failures = FailedAttempts("authenticate", counts.append, lambda: now)
    for port in range(5):
        failures.note(f"ipv4:192.0.2.1:{port}", "the token is unknown", "unauthenticated")
    failures.note("ipv6:[2001:db8::1]:1", "token:a may not use this service", "permission_denied")
    failures.note("unix:", "the token is unknown", "unauthenticated")
    now = INTERVAL_S
    failures.note("ipv4:192.0.2.1:9", "the token has expired", "unauthenticated")
    assert counts == [*["unauthenticated"] * 5, "permission_denied", *["unauthenticated"] * 2]
    lines = [record.nnhal_fields for record in caplog.records]  # type: ignore[attr-defined]
    assert {line["action"] for line in lines} == {"authenticate"}
    assert [(line["by"], line["result"], line.get("omitted", 0)) for line in lines] == [
        ("ipv4:192.0.2.1", "failed: the token is unknown", 0),
        ("ipv6:[2001:db8::1]", "failed: token:a may not use this service", 0),
        ("unix", "failed: the token is unknown", 0),
        ("ipv4:192.0.2.1", "failed: the token has expired", 4),
    ]


def test_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(failed_attempts, "_MAX_HOSTS", 2)
    failures = FailedAttempts("authenticate", clock=lambda: 0.0)
    for host in "abca":
        failures.note(f"ipv4:{host}:1", "the token is unknown", "unauthenticated")
    assert len(caplog.records) == 4
