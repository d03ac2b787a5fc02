"""Certificate authority of a test, and the certificates that it issues."""

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

import grpc
import trustme

_PAST = datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)
_FUTURE = datetime.datetime(2090, 1, 1), datetime.datetime(2091, 1, 1)
_NOW = datetime.datetime(2020, 1, 1), datetime.datetime(2090, 1, 1)
PERIODS = {"past": _PAST, "now": _NOW, "future": _FUTURE}


@dataclass(frozen=True)
class Pair:
    """Certificate with its chain, and its private key, in PEM."""

    cert: bytes
    key: bytes

    def write(self, folder: Path) -> None:
        """Write `tls.crt` and `tls.key` to a folder."""
        (folder / "tls.crt").write_bytes(self.cert)
        (folder / "tls.key").write_bytes(self.key)

    def replace(self, folder: Path) -> None:
        """Replace the files of a folder by renaming new ones."""
        for name, data in (("tls.crt", self.cert), ("tls.key", self.key)):
            (folder / f".{name}").write_bytes(data)
            os.rename(folder / f".{name}", folder / name)


class Authority:
    """Authority with a key of its own.

    Attributes:
        pem: its certificate.
    """

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()

    def issue(self, *names: str, period: str = "now", common_name: str | None = None) -> Pair:
        """Return a certificate for names or addresses, by default for this machine.

        Args:
            names: the names.
            period: key of PERIODS: when it is valid.
            common_name: its common name. Its subject is then CN=common_name,OU=fleet,O=Acme.
        """
        begin, end = PERIODS[period]
        issued = self._ca.issue_cert(
            *(names or ("localhost", "127.0.0.1")),
            common_name=common_name,
            organization_unit_name="fleet" if common_name else None,
            organization_name="Acme" if common_name else None,
            not_before=begin,
            not_after=end,
        )
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return Pair(chain, issued.private_key_pem.bytes())

    def server_credentials(self, pair: Pair, client_ca: bytes | None = None) -> grpc.ServerCredentials:
        """Return credentials of a server that never change."""
        return grpc.ssl_server_credentials([(pair.key, pair.cert)], client_ca, client_ca is not None)
