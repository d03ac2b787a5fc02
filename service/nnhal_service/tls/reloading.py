"""Certificates that follow their files. A replaced pair counts for new connections; open ones are not touched."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import grpc

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.log import event
from nnhal_service.replaced_files import file_version
from nnhal_service.tls.certificates import CertificateFiles, Certificates

REFRESH_NS = 10**9
"""Nanoseconds between two looks at the files without connections."""


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    certificates: Certificates


class ReloadingCertificates:
    """The latest valid contents of the files. Thread safe.

    Files are looked at before each handshake, and by `watch`. They may be written in place, replaced by renaming, or
    switched by a symbolic link. While they do not fit together, the previous contents stay.

    Attributes:
        problem: why the files as they are now cannot be used; "" if their contents count.

    Raises:
        ValueError: the files cannot be used.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self.problem = ""
        self._lock = threading.Lock()
        self._read_versions = _versions(files)
        self._version = _Version(0, files.read())
        event("tls-loaded", logging.INFO, **_fields(self._version.certificates))

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        with self._lock:
            versions = _versions(self._files)  # before the contents, so that a later change is noticed
            if versions == self._read_versions:
                return
            self._read_versions = versions
            try:
                certificates = self._files.read()
            except ValueError as error:
                self.problem = str(error)
                event("tls-not-reloaded", logging.WARNING, why=str(error), expires=_date(self.current))
                return
            self.problem = ""
            if certificates != self._version.certificates:
                self._version = _Version(self._version.number + 1, certificates)
                event("tls-reloaded", logging.INFO, **_fields(certificates))

    def watch(self, timers: Timers) -> None:
        """Refresh regularly until the timers are closed, so that the log tells soon about files that were replaced."""
        self.refresh()
        timers.call_at(now_ns() + REFRESH_NS, lambda: self.watch(timers))

    @property
    def current(self) -> Certificates:
        """The latest valid contents."""
        return self._version.certificates

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for one port of a server. Each port needs its own."""
        initial = self._version
        return grpc.dynamic_ssl_server_credentials(
            _configuration(initial.certificates), self._fetcher(initial), initial.certificates.client_ca is not None
        )

    def _fetcher(self, initial: _Version) -> Callable[[], grpc.ServerCertificateConfiguration]:
        """Return a function that gRPC calls before each handshake of a port, for the contents if they are new."""
        used = initial.number

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal used
            self.refresh()
            version = self._version
            if version.number == used:
                return None
            used = version.number
            return _configuration(version.certificates)

        return cast(Callable[[], grpc.ServerCertificateConfiguration], fetch)  # whose types do not know None


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    pairs = [(certificates.key, certificates.chain)]
    return grpc.ssl_server_certificate_configuration(pairs, certificates.client_ca)


def _versions(files: CertificateFiles) -> Sequence[tuple[int, ...] | None]:
    return [file_version(path) for path in files.paths]


def _fields(certificates: Certificates) -> Mapping[str, object]:
    """Return the fields of a log line about certificates, and warn if that of the service has expired."""
    fields = {"subject": certificates.subject, "expires": _date(certificates)}
    if certificates.expires <= datetime.now(UTC):
        event("tls-expired", logging.WARNING, **fields)
    return {**fields, "mutual": certificates.client_ca is not None}


def _date(certificates: Certificates) -> str:
    return f"{certificates.expires:%Y-%m-%dT%H:%M:%SZ}"
