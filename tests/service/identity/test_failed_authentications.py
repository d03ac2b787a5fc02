"""Failed authentications: all are counted, and few are logged."""

import pytest

from nnhal_service.identity import failed_authentications
from nnhal_service.identity.accounts import permission_denied, unauthenticated
from nnhal_service.identity.failed_authentications import INTERVAL_S, FailedAuthentications


def test_each_failure_counts_and_a_host_has_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now, counts = 0.0, list[str]()
    failures = FailedAuthentications(counts.append, lambda: now)
    for port in range(5):
        failures.note(f"ipv4:192.0.2.1:{port}", unauthenticated("the token is unknown"))
    failures.note("ipv6:[2001:db8::1]:1", permission_denied("token:a may not use this service"))
    failures.note("unix:", unauthenticated("the token is unknown"))
    now = INTERVAL_S
    failures.note("ipv4:192.0.2.1:9", unauthenticated("the token has expired"))
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
    monkeypatch.setattr(failed_authentications, "_MAX_HOSTS", 2)
    failures = FailedAuthentications(clock=lambda: 0.0)
    for host in "abca":
        failures.note(f"ipv4:{host}:1", unauthenticated("the token is unknown"))
    assert len(caplog.records) == 4
