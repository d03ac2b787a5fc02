"""Certificates of a service: its chain and private key, and the authority of its clients, from files in PEM."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from nnhal_service.replaced_files import read_file


@dataclass(frozen=True, slots=True)
class Certificates:
    """Contents of the files, checked.

    Attributes:
        chain: certificate of the service and those of its authorities, in PEM.
        key: the private key of the service, in PEM.
        client_ca: authorities of the clients, in PEM; None if clients need no certificate.
        subject: name of the service in its certificate, for the log.
        expires: end of the certificate's validity, in UTC.
    """

    chain: bytes
    key: bytes
    client_ca: bytes | None
    subject: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of a service.

    Attributes:
        certificate: the chain: the certificate of the service first.
        key: its private key, without a passphrase. It may be in the same file.
        client_ca: authorities of the clients; None if clients need no certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of all files."""
        return (self.certificate, self.key, *([self.client_ca] if self.client_ca else []))

    def read(self) -> Certificates:
        """Read and check the files.

        Raises:
            ValueError: a file is unreadable or is not PEM, or the key does not belong to the certificate. The message
                has the path, and nothing of the contents.
        """
        chain, key = read_file(self.certificate), read_file(self.key)
        certificate = _parse_certificates(self.certificate, chain)[0]
        if certificate.public_key() != _parse_key(self.key, key):
            raise ValueError(f"the key in {self.key} does not belong to the certificate in {self.certificate}")
        client_ca = None
        if self.client_ca is not None:
            _parse_certificates(self.client_ca, client_ca := read_file(self.client_ca))
        return Certificates(chain, key, client_ca, _name(certificate), certificate.not_valid_after_utc)


def _parse_certificates(path: Path, text: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        raise ValueError(f"{path} has no certificate in PEM, or a damaged one") from None


def _parse_key(path: Path, text: bytes) -> PublicKeyTypes:
    """Return the public half of a private key."""
    try:
        return serialization.load_pem_private_key(text, None).public_key()
    except TypeError:
        raise ValueError(f"the private key in {path} has a passphrase; expected one without") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"{path} has no private key in PEM, or a damaged one") from None


def _name(certificate: x509.Certificate) -> str:
    """Return the first name that clients may expect, or else the subject."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        names = None
    return str(next(iter(names)).value) if names else certificate.subject.rfc4514_string()
