"""Files of certificates: what is read, and the reasons why files cannot be used."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from nnhal_service.tls.certificates import CertificateFiles
from tests.service.tls.authority import Authority

AUTHORITY = Authority()
PAIR = AUTHORITY.issue("nnhal.example", "127.0.0.1")


def files_in(folder: Path, *, client_ca: bool = False) -> CertificateFiles:
    PAIR.write(folder)
    (folder / "ca.crt").write_bytes(AUTHORITY.pem)
    return CertificateFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt" if client_ca else None)


def test_contents(tmp_path: Path) -> None:
    certificates = files_in(tmp_path, client_ca=True).read()
    assert (certificates.chain, certificates.key, certificates.client_ca) == (PAIR.cert, PAIR.key, AUTHORITY.pem)
    assert certificates.subject == "nnhal.example"
    assert certificates.expires.year == 2090


def test_key_in_the_file_of_the_certificate(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_bytes(PAIR.key + PAIR.cert)
    certificates = CertificateFiles(tmp_path / "both.pem", tmp_path / "both.pem").read()
    assert certificates.subject == "nnhal.example"
    assert certificates.client_ca is None


def encrypted(key: bytes) -> bytes:
    private = serialization.load_pem_private_key(key, None)
    secret = serialization.BestAvailableEncryption(b"secret")
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)


@pytest.mark.parametrize(
    ("name", "contents", "reason"),
    [
        ("tls.crt", None, "cannot read {}: no such file or directory"),
        ("tls.crt", b"", "{} has no certificate in PEM, or a damaged one"),
        ("tls.crt", PAIR.cert[: len(PAIR.cert) // 4], "{} has no certificate in PEM, or a damaged one"),
        ("tls.key", PAIR.key[:-40], "{} has no private key in PEM, or a damaged one"),
        ("tls.key", PAIR.cert, "{} has no private key in PEM, or a damaged one"),
        ("tls.key", encrypted(PAIR.key), "the private key in {} has a passphrase; expected one without"),
        ("tls.key", AUTHORITY.issue().key, "the key in {} does not belong to the certificate in"),
        ("ca.crt", b"-----BEGIN", "{} has no certificate in PEM, or a damaged one"),
    ],
)
def test_unusable_files(tmp_path: Path, name: str, contents: bytes | None, reason: str) -> None:
    files = files_in(tmp_path, client_ca=True)
    path = tmp_path / name
    if contents is None:
        path.unlink()
    else:
        path.write_bytes(contents)
    with pytest.raises(ValueError) as failed:
        files.read()
    assert str(failed.value).startswith(reason.format(path))
