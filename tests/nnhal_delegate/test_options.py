"""Options of the delegate."""

from pathlib import Path

import pytest

from nnhal.errors import HalError
from nnhal.types import ExecutionPreference, Priority
from nnhal_delegate.options import parse_options


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NNHAL_TARGET", "NNHAL_DELEGATE_LOG"):
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    options = parse_options({})
    assert options.connection == {"target": None}
    assert options.preparation == {"cache": True}
    assert (options.deadline, options.falls_back, options.profile, options.log) == (None, False, None, "warning")


def test_all_options(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    options = parse_options(
        {
            "target": "host:1",
            "device": "npu",
            "timeout": "2.5",
            "transport": "grpc",
            "tls": "true",
            "ca": "/ca.pem",
            "cert": "/cert.pem",
            "key": "/key.pem",
            "server_name": "name",
            "token_file": str(token),
            "cache": "false",
            "preference": "low_power",
            "priority": "high",
            "deadline_ms": "250",
            "fallback": "litert",
            "profile": "/trace.json",
            "log": "debug",
        }
    )
    read_token = options.connection["token"]
    assert read_token() == "secret"
    assert options.connection == {
        "target": "host:1",
        "device": "npu",
        "timeout": 2.5,
        "transport": "grpc",
        "tls": True,
        "ca": Path("/ca.pem"),
        "cert": Path("/cert.pem"),
        "key": Path("/key.pem"),
        "server_name": "name",
        "token": read_token,
    }
    assert options.preparation == {
        "cache": False,
        "preference": ExecutionPreference.LOW_POWER,
        "priority": Priority.HIGH,
    }
    assert (options.deadline, options.falls_back) == (0.25, True)
    assert (options.profile, options.log) == (Path("/trace.json"), "debug")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cache", "maybe"),
        ("deadline_ms", "soon"),
        ("deadline_ms", "0"),
        ("fallback", "cpu"),
        ("log", "loud"),
        ("priority", "urgent"),
        ("timeout", "-1"),
        ("transport", "pigeon"),
    ],
)
def test_invalid_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(HalError, match=f"(?i)invalid.*{text}|{name}"):
        parse_options({name: text})


def test_the_environment_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_TARGET", "host:1")
    monkeypatch.setenv("NNHAL_DELEGATE_LOG", "info")
    options = parse_options({})
    assert (options.connection["target"], options.log) == ("host:1", "info")
    assert parse_options({"target": "host:2"}).connection["target"] == "host:2"
