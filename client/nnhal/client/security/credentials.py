"""Certificates of a client, read from files or bytes, and the credentials of gRPC made of them."""

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from nnhal.client.security.options import PemSource, SecurityOptions
from nnhal.errors import argument_error


@dataclass(frozen=True, repr=False)
class ClientCertificates:
    """Contents of the files of a client.

    Attributes:
        ca: authorities of the service, in PEM; None for those of gRPC.
        cert, key: certificate of the client and its private key, in PEM, or None.
    """

    ca: bytes | None
    cert: bytes | None
    key: bytes | None

    @staticmethod
    def read(options: SecurityOptions) -> "ClientCertificates":
        """Read files, or take bytes. Their contents are not checked.

        Raises:
            HalError: INVALID_ARGUMENT: a file is unreadable.
        """
        ca, cert = _read("ca", options["ca"]), _read("cert", options["cert"])
        return ClientCertificates(ca, cert, cert if options["key"] is None else _read("key", options["key"]))

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of channels.

        Raises:
            HalError: INVALID_ARGUMENT: they cannot be used. gRPC would tell only its log.
        """
        self.context()
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)

    def context(self) -> ssl.SSLContext:
        """Return a context of Python's own TLS with these certificates, which does not check names.

        Raises:
            HalError: INVALID_ARGUMENT: they cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        if self.ca is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=self.ca.decode("ascii"))
            except (ssl.SSLError, ValueError):
                raise argument_error("ca has no certificate in PEM, or a damaged one") from None
        if self.cert is not None and self.key is not None:
            _load_pair(context, self.cert, self.key)
        return context


def _read(name: str, source: PemSource | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise argument_error(f"cannot read {name} {os.fspath(source)!r}: {reason}") from None


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Add a certificate and its private key, which Python reads from files only.

    Raises:
        HalError: INVALID_ARGUMENT: they are not PEM, or do not belong together.
    """
    with _as_file(cert + b"\n" + key) as path:
        try:
            context.load_cert_chain(path, password=_no_passphrase)
        except _PassphraseError:
            raise argument_error("the private key of the client has a passphrase; expected one without") from None
        except (ssl.SSLError, ValueError) as error:
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                raise argument_error("the private key of the client does not belong to its certificate") from None
            text = "cert and key are not a certificate and a private key in PEM, or they are damaged"
            raise argument_error(text) from None


class _PassphraseError(Exception):
    pass


def _no_passphrase() -> str:
    raise _PassphraseError


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Provide bytes as a file: in memory if the system can, else for this user only."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("nnhal-client")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "pair.pem")
            path.write_bytes(data)
            yield str(path)
