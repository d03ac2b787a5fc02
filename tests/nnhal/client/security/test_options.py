"""Options of connect for TLS and tokens: contradictions, unusable files, and environment variables."""

from pathlib import Path
from typing import Any

import grpc
import pytest

import nnhal
import nnhal.aio
from nnhal.client.security.options import NO_OPTIONS, SecurityOptions, with_environment
from nnhal.errors import HalError
from tests.nnhal.unix_sockets import needs_unix_sockets
from tests.redirecting_server import redirecting
from tests.service.tls.authority import Authority

CA = Authority()
SERVER, CLIENT = CA.issue(), CA.issue("client@example.org")
TCP, UNIX = "127.0.0.1:1", "unix:/none"


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        (TCP, {"key": CLIENT.key}, "key is given without cert; a private key needs its certificate"),
        (TCP, {"credentials": grpc.ssl_channel_credentials(), "tls": True}, "credentials and tls are given"),
        (TCP, {"credentials": grpc.ssl_channel_credentials(), "ca": CA.pem}, "credentials and ca are given"),
        (TCP, {"tls": False, "ca": CA.pem}, "ca is given, but tls is False"),
        (TCP, {"tls": False, "server_name": "a"}, "server_name is given, but tls is False"),
        (f"grpcs://{TCP}", {"tls": False}, "tls is False, but the target is grpcs://127.0.0.1:1"),
        pytest.param(
            "grpcs://unix:/none",
            {},
            "tls is given for unix:/none; Unix sockets do not use TLS",
            marks=needs_unix_sockets,
        ),
        pytest.param(
            UNIX, {"ca": CA.pem}, "ca is given for unix:/none; Unix sockets do not use TLS", marks=needs_unix_sockets
        ),
        (None, {"tls": True}, "tls is given without a target"),
        (None, {"token": "a"}, "token is given without a target"),
        (TCP, {"ca": "/no/such/file"}, "cannot read ca '/no/such/file': no such file or directory"),
        (TCP, {"ca": b"x"}, "ca has no certificate in PEM, or a damaged one"),
        (TCP, {"cert": b"x", "key": b"y"}, "cert and key are not a certificate and a private key in PEM"),
        (TCP, {"cert": CLIENT.cert, "key": SERVER.key}, "the private key of the client does not belong to its"),
        (TCP, {"cert": CLIENT.cert}, "cert and key are not a certificate and a private key in PEM"),
        (TCP, {"token": "a b"}, "the token has characters that bearer tokens cannot have, or is empty"),
        (TCP, {"token": ""}, "the token has characters that bearer tokens cannot have, or is empty"),
        (TCP, {"token": lambda: "a\n"}, "the token has characters that bearer tokens cannot have, or is empty"),
        ("192.0.2.1:1", {"token": "a"}, "a token is given for 192.0.2.1:1, which needs TLS"),
        ("nnhal.example:1", {"token": "a", "tls": False}, "a token is given for nnhal.example:1, which needs TLS"),
    ],
)
def test_unusable_options(target: str | None, options: dict[str, Any], reason: str) -> None:
    for connect in (nnhal.connect, nnhal.aio.connect):
        with pytest.raises(HalError) as failed:
            connect(target, **options)
        assert str(failed.value).startswith(f"INVALID_ARGUMENT: {reason}")


@pytest.mark.parametrize("name", ["credentials", "tls", "ca", "cert", "key", "server_name", "token"])
def test_wrong_types(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} is a float; expected "):
        nnhal.connect(TCP, **{name: 1.5})  # type: ignore[arg-type]


def test_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(CA.pem)
    (tmp_path / "pair").write_bytes(CLIENT.key + CLIENT.cert)
    (tmp_path / "token").write_text("first\n")
    monkeypatch.setenv("NNHAL_TLS_CA", str(tmp_path / "ca"))
    monkeypatch.setenv("NNHAL_CLIENT_CERT", str(tmp_path / "pair"))
    monkeypatch.setenv("NNHAL_TOKEN_FILE", str(tmp_path / "token"))
    with redirecting(credentials=CA.server_credentials(SERVER, CA.pem)) as server:
        with nnhal.connect(f"grpcs://{server.target}"):
            assert server.headers == ["Bearer first"]
        with nnhal.connect(server.target, token="second"):
            assert server.headers == ["Bearer first", "Bearer second"]
    with redirecting() as plain, nnhal.connect(plain.target, tls=False):
        assert plain.headers == ["Bearer first"]
    monkeypatch.setenv("NNHAL_TLS_SERVER_NAME", "nnhal.example")
    with (
        redirecting(credentials=CA.server_credentials(SERVER, CA.pem)) as server,
        pytest.raises(HalError, match=r"is for localhost, 127\.0\.0\.1, not for nnhal\.example"),
    ):
        nnhal.connect(server.target)


def variables(target: str | None, ca: bytes | None = None) -> SecurityOptions:
    return with_environment(target, {**NO_OPTIONS, "ca": ca})


@needs_unix_sockets
def test_variables_count_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_TLS", "true")
    monkeypatch.setenv("NNHAL_TOKEN", "abc")
    assert (variables(TCP)["tls"], variables(TCP)["token"]) == (True, "abc")
    assert (variables(UNIX)["tls"], variables(UNIX)["token"]) == (None, "abc")
    assert variables(None) == NO_OPTIONS
    assert variables(TCP, ca=b"a")["tls"] is None
    monkeypatch.setenv("NNHAL_TLS", "false")
    assert variables(TCP)["tls"] is False
    monkeypatch.setenv("NNHAL_TLS", "perhaps")
    with pytest.raises(HalError, match="invalid NNHAL_TLS='perhaps'; expected true or false"):
        variables(TCP)
