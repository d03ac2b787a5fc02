"""Addresses of a gRPC server: they are bound without gRPC's log lines, and never taken from another service.

gRPC replaces an existing Unix socket, even that of a running service, and removes any socket at its path when it stops.
So gRPC binds a temporary path here, and a hard link gives the socket its name: that fails if the name exists.
"""

import errno
import fcntl
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc

from nnhal.address import Address
from nnhal.probe import connection_problem


class Listener:
    """Address that a server listens on.

    Attributes:
        address: the address, with its real port.

    Raises:
        ValueError: the address cannot be bound, for example because another service uses it.
    """

    def __init__(self, server: grpc.Server, text: str) -> None:
        address = Address.parse(text)
        self._path: Path | None = None
        try:
            if address.kind == "unix":
                self._path = Path(address.path)
                self._file = _bind_unix(server, text, self._path)
                self.address = text
            else:
                _check_free(address)
                self.address = address.with_port(server.add_insecure_port(text))
        except OSError as error:
            in_use = "; is another service running there?" if error.errno == errno.EADDRINUSE else ""
            reason = (error.strerror or str(error)).lower()
            raise ValueError(f"cannot listen on {text}: {reason}{in_use}") from None
        except RuntimeError as error:  # gRPC's
            raise ValueError(f"cannot listen on {text}: {error}") from None

    def remove_socket(self) -> None:
        """Remove the Unix socket, unless another one has its name by now."""
        if self._path is not None and _file_id(self._path) == self._file:
            self._path.unlink(missing_ok=True)


def _check_free(address: Address) -> None:
    """Bind a TCP address and release it again.

    Raises:
        OSError: it is in use, or no address of the host belongs to this machine.
    """
    failures: list[OSError] = []
    hosts = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, host in hosts:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(host)
        except OSError as error:
            failures.append(error)
    # one family may be missing: many machines resolve localhost to ::1 without having it
    if failures and (len(failures) == len(hosts) or any(error.errno == errno.EADDRINUSE for error in failures)):
        raise failures[-1]


def _bind_unix(server: grpc.Server, text: str, path: Path) -> tuple[int, int]:
    """Bind a Unix socket, and return the identity of its file.

    Raises:
        OSError: the path is in use, is not a socket, or cannot be created.
    """
    temporary = path.with_name(f".{secrets.token_hex(3)}")
    with socket.socket(socket.AF_UNIX) as probe:  # fails as gRPC would, but without log lines
        probe.bind(str(temporary))
    temporary.unlink()
    with _locked(path.parent):
        _remove_stale(text, path)
        server.add_insecure_port(f"unix:{temporary}")
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()
    file = _file_id(path)
    assert file is not None
    return file


def _remove_stale(text: str, path: Path) -> None:
    """Remove the socket of a service that has ended without removing it.

    Raises:
        OSError: a service uses it, or the path is not a socket.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "the path exists and is not a socket")
        if not isinstance(connection_problem(text), ConnectionRefusedError):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other services that bind a socket in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if it does not exist."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
