"""Access after a reload, and by certificates, whose identities are those that gRPC would find."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from nnhal_service.identity.authentication import certificate_identity
from nnhal_service.identity.http_caller import HttpCaller, certificate_properties
from nnhal_service.identity.identity import Identity
from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.identity.tokens import create_token
from nnhal_service.metrics.pending_counts import PendingCounts
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.web.access import (
    CallerRights,
    ReloadingAccess,
    UnauthenticatedError,
)
from nnhal_service.settings import Settings

ALICE = Identity("token", "alice")


class Service:
    """Settings that change, and a clock."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Settings | Exception = settings
        self.now_s = 0.0
        self.access = ReloadingAccess(settings, 8080, self.read, PendingCounts().count, lambda: self.now_s)

    def read(self) -> Settings:
        if isinstance(self.settings, Exception):
            raise self.settings
        return self.settings

    def rights(self, token: str) -> CallerRights:
        self.now_s += 10
        return self.access.find_rights(HttpCaller(f"Bearer {token}" if token else ""))


def test_rights_follow_the_settings(tmp_path: Path) -> None:
    token, line = create_token("alice")
    (tmp_path / "tokens").write_text(line)
    (tmp_path / "tokens").chmod(0o600)
    policy = Policy(identities={"token:alice": IdentityRules(administer=True)})
    service = Service(Settings())
    with pytest.raises(UnauthenticatedError):
        service.rights(token)
    assert service.rights("").may_observe

    service.settings = Settings(tokens=tmp_path / "tokens", policy=policy)
    assert service.rights(token) == CallerRights(ALICE, may_observe=True, may_administer=True)
    assert not service.rights("").may_observe

    for failure in (AdminError("the service has ended"), Settings(tokens=tmp_path / "missing")):
        service.settings = failure
        assert service.rights(token).identity == ALICE, "the previous settings count"

    service.settings = Settings(tokens=tmp_path / "tokens")
    assert service.rights(token) == CallerRights(ALICE, may_observe=False, may_administer=False)


def certificate(*uris: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"), x509.NameAttribute(NameOID.COMMON_NAME, "camera")]
    )
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def identity(*uris: str) -> Identity | None:
    return certificate_identity(certificate_properties(certificate(*uris)))


def test_spiffe_ids_come_before_subjects() -> None:
    assert identity("spiffe://example.org/camera") == Identity("spiffe", "spiffe://example.org/camera")
    assert identity("https://example.org/") == Identity("certificate", "CN=camera,O=Example")
    assert identity() == Identity("certificate", "CN=camera,O=Example")


def test_two_spiffe_ids_identify_nobody() -> None:
    assert identity("spiffe://example.org/a", "spiffe://example.org/b") is None
