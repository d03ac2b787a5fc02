"""Identities in certificates of HTTP callers are those that gRPC would find."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from nnhal_service.identity.certificates import certificate_identity
from nnhal_service.identity.identity import Identity
from nnhal_service.operating.web.identity_access import certificate_properties


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
