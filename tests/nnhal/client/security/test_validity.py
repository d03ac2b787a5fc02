"""End of a certificate's validity, compared with what another library reads."""

import pytest
from cryptography import x509

from nnhal.client.security.validity import end_of_validity
from tests.service.tls.authority import Authority

CA = Authority()


@pytest.mark.parametrize("period", ["past", "now", "future"])
def test_end(period: str) -> None:
    pem = CA.issue("a" * 60, period=period).cert
    (certificate, *_) = x509.load_pem_x509_certificates(pem)
    assert end_of_validity(pem) == certificate.not_valid_after_utc.timestamp()
    assert end_of_validity(b"some text\n" + pem) == certificate.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"\xff",
        b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_damaged_certificates(pem: bytes) -> None:
    assert end_of_validity(pem) is None
