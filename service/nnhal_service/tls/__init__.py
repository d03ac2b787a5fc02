"""TLS of a service: certificates from files that may be replaced at any time, and credentials made of them."""

from typing import TYPE_CHECKING

from nnhal_service.settings import Settings

if TYPE_CHECKING:
    from nnhal_service.tls.reloading import ReloadingCertificates


def load_certificates(settings: Settings) -> "ReloadingCertificates | None":
    """Return the certificates in the settings, or None if the service has no TLS.

    Raises:
        ValueError: the files cannot be used.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    from nnhal_service.tls import certificates, reloading  # noqa: PLC0415 - only TLS needs cryptography

    files = certificates.CertificateFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    return reloading.ReloadingCertificates(files)
