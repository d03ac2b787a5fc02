"""Access to a service: who may open sessions, and whose calls may use them."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nnhal.services import SERVICES
from nnhal.v1 import error_pb2, memory_pb2, session_pb2
from nnhal_service.identity.json_web_tokens import LEEWAY_S
from nnhal_service.identity.tokens import create_token
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.end_to_end.support.raw_client import RawSession
from tests.service.identity.callers import channel_with, failure, open_session
from tests.service.identity.issuer import AUDIENCE, ISSUER, Issuer

LOST = "FAILED_PRECONDITION", error_pb2.ERROR_KIND_SESSION_LOST
UNAUTHENTICATED = "UNAUTHENTICATED", error_pb2.ERROR_KIND_UNAUTHENTICATED
DENIED = "PERMISSION_DENIED", error_pb2.ERROR_KIND_PERMISSION_DENIED
POLICY: dict[str, Any] = {
    "identities": {
        "token:denied": {"connect": False},
        "token:few": {"sessions": 2, "prepared_models": 1, "memory_bytes": 1000, "executions": 7},
    }
}


@dataclass(frozen=True)
class Service:
    """A service whose clients authenticate with tokens.

    Attributes:
        tokens: the tokens by name.
        file: the file with their digests.
    """

    server: Server
    issuer: Issuer
    tokens: dict[str, str]
    file: Path

    @property
    def target(self) -> str:
        """The address."""
        return self.server.addresses[0]

    def header(self, name: str) -> str:
        """Return the header of a static token."""
        return f"Bearer {self.tokens[name]}"

    def identities(self) -> list[str]:
        """Return the identities of the open sessions."""
        return sorted(str(session.identity) for session in self.server.sessions.all())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("access")
    created = {name: create_token(name) for name in ("alice", "bob", "denied", "few", "revoked")}
    (folder / "tokens").write_text("\n".join(line for _, line in created.values()))
    (folder / "keys").write_bytes((issuer := Issuer()).key_set())
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_dir=folder / "cache",
        state_dir=folder / "state",
        session_grace_s=60,
        tokens=folder / "tokens",
        jwt_keys=str(folder / "keys"),
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        policy=POLICY,  # type: ignore[arg-type]
    )
    with Server(settings) as server:
        yield Service(server, issuer, {name: token for name, (token, _) in created.items()}, folder / "tokens")


def opening(service: Service, header: str) -> tuple[str, int, str]:
    """Try to open a session, and return the gRPC code, the kind and the reason of the error."""

    def attempt() -> None:
        with open_session(service.target, header):
            pass

    code, detail = failure(attempt)
    return code, detail.kind, detail.reason


def test_a_session_has_the_identity_of_its_client(service: Service) -> None:
    with (
        open_session(service.target, service.header("alice")) as alice,
        open_session(service.target, f"bearer {service.issuer.token('team/carol')}"),
    ):
        assert {"jwt:team/carol", "token:alice"} <= set(service.identities())
        alice.sessions.Close(session_pb2.CloseRequest(session=alice.session))


def test_a_call_without_credentials_is_told_what_the_service_needs(service: Service) -> None:
    assert opening(service, "") == (*UNAUTHENTICATED, "the service needs a bearer token")


@pytest.mark.parametrize("header", ["Bearer nnhal_unknown", "Basic abc", "Bearer", "nnhal", "Bearer a.b.c", "Bearer  "])
def test_wrong_credentials_open_no_session(service: Service, header: str) -> None:
    assert opening(service, header)[:2] == UNAUTHENTICATED


def test_forged_tokens_open_no_session(service: Service) -> None:
    for token in (
        jwt.encode(service.issuer.claims(), None, algorithm="none"),  # type: ignore[arg-type]
        service.issuer.token(lifetime_s=-100),
        service.issuer.token(aud="others"),
    ):
        assert opening(service, f"Bearer {token}")[:2] == UNAUTHENTICATED


def test_the_policy_says_who_may_connect(service: Service) -> None:
    assert opening(service, service.header("denied")) == (*DENIED, "token:denied may not use this service")


def test_two_headers_are_an_error(service: Service) -> None:
    with channel_with(service.target, service.header("alice")) as channel:
        method = SERVICES["Device"].descriptor
        call = channel.unary_unary(f"/{method.full_name}/ListDevices")
        metadata = (("authorization", service.header("bob")),)
        assert failure(lambda: call(b"", metadata=metadata))[0] == "UNAUTHENTICATED"


def test_calls_without_a_session_need_an_identity_too(service: Service) -> None:
    for name, code in (("", "UNAUTHENTICATED"), ("denied", "PERMISSION_DENIED"), ("alice", "")):
        with channel_with(service.target, service.header(name) if name else "") as channel:
            for method in ("ListDevices", "ListBackends", "GetCapabilities", "GetVersionString"):
                call = channel.unary_unary(f"/{SERVICES['Device'].descriptor.full_name}/{method}")
                if code:
                    assert failure(lambda call=call: call(b""))[0] == code  # type: ignore[misc]
                else:
                    call(b"")


def _class_of(descriptor: Any) -> Any:
    return descriptor._concrete_class


def methods_with_sessions() -> Iterator[tuple[str, Any, Any]]:
    """Yield path, descriptor and request class of each method whose calls belong to a session."""
    for service in SERVICES.values():
        for method in service.descriptor.methods:
            if method.name != "Open" or service.descriptor.name != "Session":
                yield f"/{service.descriptor.full_name}/{method.name}", method, _class_of(method.input_type)


def request_of(descriptor: Any, request_class: Any, session: bytes) -> Any | None:
    """Return a request that belongs to a session, or None if there are none."""
    request = request_class()
    if "session" in descriptor.input_type.fields_by_name:
        request.session = session
        return request
    for field in descriptor.input_type.fields:
        if field.message_type is not None and "session" in field.message_type.fields_by_name:
            getattr(request, field.name).session = session
            return request
    return None


def outcome(channel: Any, path: str, method: Any, request: Any) -> Any:
    """Make a call of any kind, and return its code and the kind of its error."""
    encode, decode = _class_of(method.input_type).SerializeToString, _class_of(method.output_type).FromString
    streams = method.client_streaming, method.server_streaming
    make: Any = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[streams]
    call = make(path, encode, decode)
    argument = iter([request]) if method.client_streaming else request

    def run() -> None:
        response = call(argument)
        if method.server_streaming:
            list(response)

    code, detail = failure(run)
    return code, detail.kind, detail.reason


@pytest.mark.parametrize("thief", ["bob", "", "jwt"])
def test_no_call_of_another_identity_can_use_a_session(service: Service, thief: str) -> None:
    """Each RPC answers as if the session did not exist, so that its handle cannot even be tried."""
    header = {"bob": service.header("bob"), "jwt": f"Bearer {service.issuer.token('alice')}", "": ""}[thief]
    with (
        open_session(service.target, service.header("alice")) as alice,
        channel_with(service.target, header) as channel,
    ):
        tried = 0
        for path, method, request_class in methods_with_sessions():
            stolen = request_of(method, request_class, alice.session)
            if stolen is None:
                continue
            made_up = request_of(method, request_class, bytes(16))
            assert outcome(channel, path, method, stolen) == outcome(channel, path, method, made_up)
            assert outcome(channel, path, method, stolen)[:2] == LOST
            tried += 1
        assert tried >= 30
        resumed = channel.unary_stream("/nnhal.v1.Session/Open", session_pb2.OpenRequest.SerializeToString)
        code = failure(lambda: list(resumed(session_pb2.OpenRequest(session=alice.session))))[0]
        assert code == ("UNAUTHENTICATED" if not header else "FAILED_PRECONDITION")
        alice.sessions.Release(session_pb2.ReleaseRequest(session=alice.session))  # it still works for its owner


def release(raw: RawSession) -> None:
    raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session))


def test_a_session_goes_on_with_a_renewed_token_of_its_identity(service: Service) -> None:
    current = [service.issuer.token("dora")]
    with open_session(service.target, lambda: f"Bearer {current[0]}") as raw:
        current[0] = service.issuer.token("dora", more=1)
        release(raw)
        (session,) = [each for each in service.server.sessions.all() if str(each.identity) == "jwt:dora"]
        assert session.credential.proof == f"Bearer {current[0]}"
        current[0] = service.issuer.token("eve")
        assert failure(lambda: release(raw))[0] == "FAILED_PRECONDITION"
        current[0] = service.issuer.token("dora", lifetime_s=-100)
        assert failure(lambda: release(raw))[0] == "UNAUTHENTICATED"


def test_a_session_ends_with_its_token(service: Service) -> None:
    """A token that expires ends a session that lives on without calls."""
    expires_at = time.time() + 600
    with open_session(service.target, f"Bearer {service.issuer.token('frida', exp=int(expires_at))}") as raw:
        (session,) = [each for each in service.server.sessions.all() if str(each.identity) == "jwt:frida"]
        assert session.credential.expires_at == int(expires_at) + LEEWAY_S
        assert not session.credential.is_expired
        session.credential = replace(session.credential, expires_at=time.time())
        assert wait_until(lambda: "jwt:frida" not in service.identities())
        assert failure(lambda: release(raw))[0] == "FAILED_PRECONDITION"


def test_a_revoked_token_ends_its_sessions(service: Service) -> None:
    with open_session(service.target, service.header("revoked")) as raw:
        lines = service.file.read_text().splitlines()
        other = service.file.with_name("next")
        other.write_text("\n".join(line for line in lines if not line.startswith("revoked ")))
        other.replace(service.file)
        assert wait_until(lambda: "token:revoked" not in service.identities())
        assert failure(lambda: release(raw))[0] in ("FAILED_PRECONDITION", "UNAUTHENTICATED")
    assert opening(service, service.header("revoked"))[:2] == UNAUTHENTICATED
    with open_session(service.target, service.header("alice")):
        pass


def test_quotas_name_their_value_and_the_use(service: Service) -> None:
    header = service.header("few")
    with open_session(service.target, header) as first, open_session(service.target, header) as second:
        code, kind, reason = opening(service, header)
        assert (code, kind) == ("RESOURCE_EXHAUSTED", error_pb2.ERROR_KIND_LIMIT)
        assert reason == "identity token:few has 2 sessions; its quota is 2 (limit identity_sessions)"
        assert second.opened.limits["identity_sessions"] == 2
        assert second.opened.limits["identity_executions"] == 7
        create = memory_pb2.CreateMemoryRequest(session=first.session, size=900)
        first.memory.Create(create)
        create.session = second.session
        code, detail = failure(lambda: second.memory.Create(create))
        assert detail.limit == "identity_memory_bytes"
        assert "token:few uses 900 of its quota of 1000 bytes" in detail.reason
        first.sessions.Close(session_pb2.CloseRequest(session=first.session))
        assert wait_until(lambda: service.identities().count("token:few") == 1)
        with open_session(service.target, header) as third:
            create.session = third.session
            third.memory.Create(create)


def spiffe_certificate(authority: trustme.CA, *ids: str) -> tuple[bytes, bytes]:
    """Return key and certificate of a client with SPIFFE ids, and without a subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(each) for each in ids]), critical=True
        )
        .sign(issuer_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    pem = serialization.Encoding.PEM
    return (
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(pem),
    )


def test_certificates_are_identities(tmp_path: Path) -> None:
    authority = trustme.CA()
    own, alice = authority.issue_cert("localhost"), authority.issue_cert(common_name="alice", organization_name="Acme")
    (tmp_path / "cert").write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
    (tmp_path / "key").write_bytes(own.private_key_pem.bytes())
    (tmp_path / "ca").write_bytes(authority.cert_pem.bytes())
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_bytes=0,
        state_dir=tmp_path / "state",
        tls_cert=tmp_path / "cert",
        tls_key=tmp_path / "key",
        tls_client_ca=tmp_path / "ca",
    )

    def credentials(key: bytes, chain: bytes) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(authority.cert_pem.bytes(), key, chain)

    of_alice = credentials(alice.private_key_pem.bytes(), alice.cert_chain_pems[0].bytes())
    spiffe_id = "spiffe://example.org/ns/a/sa/b"
    of_workload = credentials(*spiffe_certificate(authority, spiffe_id))
    with Server(settings) as server:
        target = f"localhost:{server.addresses[0].rpartition(':')[2]}"
        with (
            open_session(target, credentials=of_alice) as first,
            open_session(target, credentials=of_workload) as second,
        ):
            identities = sorted(str(session.identity) for session in server.sessions.all())
            assert identities[0].startswith("certificate:CN=alice,")
            assert identities[0].endswith("O=Acme")
            assert identities[1] == f"spiffe:{spiffe_id}"
            release(first)
            stolen = session_pb2.ReleaseRequest(session=second.session)
            assert failure(lambda: first.sessions.Release(stolen))[0] == "FAILED_PRECONDITION"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_users_of_the_machine_are_identities(tmp_path: Path, kind: str) -> None:
    settings = Settings(
        listen=("127.0.0.1:0",) if kind == "tcp" else (f"unix:{tmp_path}/s",),
        backends=("CpuRef",),
        cache_bytes=0,
        state_dir=tmp_path / "state",
        identify_users=True,
        policy={"identities": {f"user:{os.getuid()}": {"sessions": 1}}},  # type: ignore[arg-type]
    )
    with Server(settings) as server, open_session(server.addresses[0]) as raw:
        (session,) = server.sessions.all()
        assert str(session.identity) == f"user:{os.getuid()}"
        release(raw)
        with channel_with(server.addresses[0]) as other:  # another connection of the same user
            call = other.unary_unary("/nnhal.v1.Session/Release", session_pb2.ReleaseRequest.SerializeToString)
            call(session_pb2.ReleaseRequest(session=raw.session))
        assert session.credential.proof.startswith("ipv4:127.0.0.1:" if kind == "tcp" else "unix:")


def test_a_unix_socket_with_two_users_identifies_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal_service.identity.authentication.unix_users", lambda paths: frozenset([1000, 1001]))
    settings = Settings(
        listen=(f"unix:{tmp_path}/s",),
        backends=("CpuRef",),
        cache_bytes=0,
        state_dir=tmp_path / "state",
        identify_users=True,
    )

    def attempt() -> None:
        with open_session(server.addresses[0]):
            pass

    with Server(settings) as server:
        code, detail = failure(attempt)
    assert (code, detail.kind) == UNAUTHENTICATED
    assert "users 1000 and 1001 are connected to the Unix sockets" in detail.reason


def test_a_connection_that_ends_proves_nothing_any_more(tmp_path: Path) -> None:
    """Another user could get its address and port."""
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_bytes=0,
        state_dir=tmp_path / "state",
        identify_users=True,
        session_grace_s=60,
    )
    with Server(settings) as server:
        with open_session(server.addresses[0]):
            (session,) = server.sessions.all()
            assert session.credential.proof
        assert wait_until(lambda: not session.credential.proof)
