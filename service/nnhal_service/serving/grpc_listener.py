"""Addresses of a gRPC server: they are bound without gRPC's log lines, and never taken from another service.

gRPC replaces an existing Unix socket, even that of a running service, and removes any socket at its path when it stops.
So gRPC binds a temporary path here, and then the socket gets its name: by a hard link, which fails if the name exists,
or by renaming it, if the supervisor of the service owns the name.
"""

import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from nnhal.address import Address
from nnhal_service.grpc_support.inherited_socket import InheritedSocket
from nnhal_service.tcp_port import cannot_listen, check_unused
from nnhal_service.unix_socket import file_id, locked_folder, remove_stale_socket

if TYPE_CHECKING:
    from nnhal_service.tls.reloading import ReloadingCertificates


class Listener:
    """Address that a server listens on.

    Args:
        reserved: whether a supervisor has reserved the address. The server then shares a port with other workers, and
            takes a path over from the previous worker.
        certificates: certificates for TLS on a TCP address; None for plaintext. Unix sockets have no TLS.
        inherited: descriptor of the listening socket of this address, if it is open already.
        temporary: folder for temporary files, for an inherited Unix socket.

    Attributes:
        address: the address, with its real port.
        bound_path: path under which the kernel knows a Unix socket and its connections; "" for others.

    Raises:
        ValueError: the address cannot be bound, for example because another service uses it.
    """

    def __init__(
        self,
        server: grpc.Server,
        text: str,
        *,
        reserved: bool = False,
        certificates: "ReloadingCertificates | None" = None,
        inherited: int | None = None,
        temporary: Path = Path(),
    ) -> None:
        address = Address.parse(text)
        self._path: Path | None = None
        self._inherited: InheritedSocket | None = None
        self.bound_path = address.path if address.kind == "unix" else ""
        try:
            if inherited is not None:
                self._inherited = InheritedSocket(
                    inherited,
                    temporary,
                    lambda own: _bind_tcp(server, own, certificates if address.kind == "tcp" else None),
                )
                self.address = text
            elif address.kind == "unix":
                path = Path(address.path)
                self.bound_path = str(_bind_unix(server, path, reserved=reserved))
                self.address = text
                if not reserved:
                    self._path, self._file = path, file_id(path)
            else:
                if not reserved:
                    check_unused(address)
                self.address = address.with_port(_bind_tcp(server, text, certificates))
        except OSError as error:
            raise cannot_listen(text, error) from None
        except RuntimeError as error:  # gRPC's
            raise ValueError(f"cannot listen on {text}: {error}") from None

    def release_inherited(self) -> None:
        """Leave new connections to an inherited socket to other processes. Call it before the server stops."""
        if self._inherited is not None:
            self._inherited.release()
            self._inherited = None

    def remove_socket(self) -> None:
        """Remove the Unix socket, unless another one has its name by now, or a supervisor owns the name."""
        if self._path is not None and file_id(self._path) == self._file:
            self._path.unlink(missing_ok=True)


def _bind_tcp(server: grpc.Server, text: str, certificates: "ReloadingCertificates | None") -> int:
    """Bind a TCP address, and return its real port."""
    if certificates is None:
        return server.add_insecure_port(text)
    return server.add_secure_port(text, certificates.server_credentials())


def _bind_unix(server: grpc.Server, path: Path, *, reserved: bool) -> Path:
    """Bind a Unix socket, and return the path that it had at first."""
    temporary = path.with_name(f".{secrets.token_hex(3)}")
    with socket.socket(socket.AF_UNIX) as probe:  # fails as gRPC would, but without log lines
        probe.bind(str(temporary))
    temporary.unlink()
    with locked_folder(path.parent):
        if not reserved:
            remove_stale_socket(path)
        server.add_insecure_port(f"unix:{temporary}")
        if reserved:
            temporary.rename(path)
            return temporary
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()
    return temporary
