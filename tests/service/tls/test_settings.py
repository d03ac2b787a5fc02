"""Settings for TLS: which addresses need it, and which parts of it are missing."""

from pathlib import Path

import pytest

from nnhal_service.settings import Settings

CERT, KEY = Path("/cert"), Path("/key")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "nnhal.example:0"])
def test_addresses_of_other_machines(listen: str) -> None:
    with pytest.raises(ValueError, match="can be reached from other machines; that needs TLS"):
        Settings(listen=(listen,)).check_exposure()
    Settings(listen=(listen,), insecure=True).check_exposure()
    Settings(listen=(listen,), tls_cert=CERT, tls_key=KEY).check_exposure()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "unix:/a"])
def test_addresses_of_this_machine(listen: str) -> None:
    Settings(listen=(listen,)).check_exposure()
    Settings(listen=(listen,), tls_cert=CERT, tls_key=KEY, tls_client_ca=CERT).check_exposure()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Settings(tls_cert=CERT), "--tls-cert without --tls-key; TLS needs a certificate and its private key"),
        (Settings(tls_key=KEY), "--tls-key without --tls-cert; TLS needs a certificate and its private key"),
        (Settings(tls_client_ca=CERT), "--tls-client-ca without --tls-cert and --tls-key"),
        (Settings(admin_listen="127.0.0.1:0", tokens=KEY), "--admin-listen 127.0.0.1:0: a TCP address needs TLS"),
        (Settings(admin_listen="127.0.0.1:0", tls_cert=CERT, tls_key=KEY), "a TCP address needs TLS .* and identities"),
    ],
)
def test_missing_parts(settings: Settings, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        settings.check_exposure()
