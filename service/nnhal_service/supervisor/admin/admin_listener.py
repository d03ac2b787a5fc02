"""Addresses of the admin process, which belong to the supervisor."""

import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnhal.address import Address
from nnhal_service.log import event
from nnhal_service.settings import Settings
from nnhal_service.unix_socket import file_id, locked_folder, remove_stale_socket

_NONE = "none"


class AdminListener:
    """Addresses of the admin process. The supervisor keeps them while the process is replaced. Close them when done.

    Args:
        addresses: the addresses for clients, after which the default address is named.

    Attributes:
        address: the address of the administration on this machine; "" if there is none.
        tcp: the address of the administration for other machines; "" if there is none.
        http: the address of the HTTP port; "" if there is none.
        sockets: the listening sockets, "admin", "tcp" and "http", as far as there are.

    Raises:
        ValueError: the address of the settings is invalid, in use, or cannot be bound.
    """

    def __init__(self, settings: Settings, addresses: Sequence[str]) -> None:
        self.address = self.tcp = self.http = ""
        self.sockets: dict[str, socket.socket] = {}
        given = settings.admin_listen
        with ExitStack() as stack:
            stack.callback(self.close)
            if given is not None and given != _NONE:
                with _naming(f"--admin-listen {given}"):
                    self._listen_at(given)
            if given != _NONE and not self.address:
                try:
                    self._listen_by_default(settings.state_dir, addresses)
                except (OSError, ValueError) as error:
                    event("admin-unavailable", logging.WARNING, why=_text(error))
            if settings.http_listen is not None:
                with _naming(f"--http-listen {settings.http_listen}"):
                    self.http = self._listen_on_port("http", Address.parse(settings.http_listen))
            stack.pop_all()

    def _listen_at(self, text: str) -> None:
        """Listen at the address of the settings, which have what a TCP address needs (`check_exposure`)."""
        address = Address.parse(text)
        if address.kind == "unix":
            self._listen(text)
            return
        self.tcp = self._listen_on_port("tcp", address)

    def _listen_by_default(self, folder: Path, addresses: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        first = Address.parse(addresses[0])
        name = f"admin-{first.port if first.kind == 'tcp' else Path(first.path).stem}"
        try:
            self._listen(f"unix:{folder / name}.sock")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            self._listen(f"unix:{folder / name}-{os.getpid()}.sock")  # of another service with a socket of that name

    def _listen(self, text: str) -> None:
        path = Path(Address.parse(text).path)
        listener = socket.socket(socket.AF_UNIX)
        try:
            with locked_folder(path.parent):
                remove_stale_socket(path)
                mask = os.umask(0o177)
                try:
                    listener.bind(str(path))
                finally:
                    os.umask(mask)
            listener.listen()
        except BaseException:
            listener.close()
            raise
        self.sockets["admin"], self.address = listener, text
        self._path, self._file = path, file_id(path)

    def _listen_on_port(self, name: str, address: Address) -> str:
        """Listen on a TCP port, and return its address with the real port."""
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, target = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(target)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
        self.sockets[name] = listener
        return address.with_port(listener.getsockname()[1])

    def close(self) -> None:
        """Close the sockets and remove the file of the administration, unless another one has its name by now."""
        for each in self.sockets.values():
            each.close()
        if "admin" in self.sockets and file_id(self._path) == self._file:
            self._path.unlink(missing_ok=True)
        self.sockets = {}


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Name the option in the errors of its address."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{option}: {_text(error)}") from None


def _text(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
