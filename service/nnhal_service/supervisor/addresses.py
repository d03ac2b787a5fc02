"""Addresses of a service with workers. The supervisor reserves them, and they stay its own while workers are replaced.

TCP: all workers listen on the shared port, and the kernel distributes the connections (SO_REUSEPORT). A socket that is
bound but does not listen reserves the port, so that no other user can bind it. Several workers also have a private port
each, for clients that are sent to one of them. A worker that serves one client has only that.

Unix: `unix:PATH` belongs to the only worker. Of several, worker n has `unix:PATH.n`, and PATH is another name of the
socket of one that serves any client: the supervisor changes it when this worker does not serve any more. A lock file
beside each path reserves it.

Inherited sockets, which a service manager has opened: all workers accept connections from the same socket. Several
workers also have a private port or path each, `unix:PATH.n` for worker n.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from nnhal.address import Address
from nnhal_service.tcp_port import bind_port, cannot_listen, check_unused
from nnhal_service.unix_socket import file_id, owned_path, remove_stale_socket

_ATTEMPTS = 20
"""Number of free ports to try, until one is free on all hosts."""


@dataclass(frozen=True, slots=True)
class WorkerAddresses:
    """Addresses of one worker.

    Attributes:
        listen: those that it binds.
        port: TCP port of clients that are sent to it; 0 if there is none.
        unix: address for clients that are sent to a worker over a Unix socket, without its number: `unix:PATH`; "" if
            there is none.
    """

    listen: tuple[str, ...]
    port: int = 0
    unix: str = ""

    def for_redirect(self, slot: int, port: int, *, is_local: bool) -> str:
        """Return the address for a client that is sent to a worker with a port; "" if there is none."""
        if is_local:
            return f"{self.unix}.{slot}" if self.unix else ""
        return f":{port}" if port else ""


class ReservedAddresses:
    """Addresses of a service. Close them when done.

    Args:
        listen: addresses as in the settings.
        inherited: those of the addresses that a service manager has opened.

    Attributes:
        shared: the addresses for clients, with their real ports.

    Raises:
        ValueError: an address is in use, or cannot be bound.
    """

    def __init__(self, listen: Sequence[str], workers: int, inherited: Collection[str] = ()) -> None:
        with ExitStack() as stack:
            self._inherited = frozenset(inherited)
            self._paths: list[Path] = []
            self._tcp: list[Address] = []
            self.shared = tuple(self._reserve(text, stack) for text in listen)
            self._shared_paths = [*self._paths] if workers > 1 else []
            self._count = workers
            self._workers = {slot: self._addresses_of(slot, stack) for slot in range(workers)}
            stack.callback(self._remove_sockets)
            self._reserved = stack.pop_all()

    def of_worker(self, slot: int) -> WorkerAddresses:
        """Return the addresses of a worker. They are reserved when they are needed first.

        Raises:
            ValueError: no address can be reserved.
        """
        if slot not in self._workers:
            self._workers[slot] = self._addresses_of(slot, self._reserved)
        return self._workers[slot]

    def lead_to(self, slots: Sequence[int]) -> None:
        """Have each path that several workers share lead to one of some workers. It stays if it already does."""
        for path in self._shared_paths:
            sockets = [path.with_name(f"{path.name}.{slot}") for slot in slots]
            with suppress(OSError):  # the folder may be gone, or the worker; the next call tries again
                if sockets and file_id(path) not in [file_id(each) for each in sockets]:
                    new = path.with_name(f"{path.name}.new")
                    new.unlink(missing_ok=True)
                    os.link(sockets[0], new)
                    new.rename(path)

    def close(self) -> None:
        """Give the addresses up, after the workers have ended."""
        self._reserved.close()

    def _reserve(self, text: str, stack: ExitStack) -> str:
        address = Address.parse(text)
        if text in self._inherited:
            if address.kind == "tcp":
                self._tcp.append(address)
            return text
        try:
            if address.kind == "unix":
                self._claim(Path(address.path), stack)
                return text
            check_unused(address)
            port = bind_port(address, address.port, stack)
        except OSError as error:
            raise cannot_listen(text, error) from None
        self._tcp.append(address)
        return address.with_port(port)

    def _claim(self, path: Path, stack: ExitStack) -> None:
        stack.enter_context(owned_path(path))
        self._paths.append(path)

    def _addresses_of(self, slot: int, stack: ExitStack) -> WorkerAddresses:
        paths = [text for text in self.shared if text.startswith("unix:")]
        unix = paths[0] if paths else ""
        if self._count == 1 and slot == 0:
            return WorkerAddresses(self.shared, unix=unix)
        # gRPC shares a port between processes, and not a path
        shared = [text for text in self.shared if text not in paths or text in self._inherited]
        port = self._reserve_private_port(stack) if self._tcp else 0
        own = [address.with_port(port) for address in self._tcp]
        for text in (f"{path}.{slot}" for path in paths):
            self._claim(Path(Address.parse(text).path), stack)
            own.append(text)
        return WorkerAddresses((*(shared if slot < self._count else ()), *own), port, unix)

    def _reserve_private_port(self, stack: ExitStack) -> int:
        """Reserve one free port on all hosts that the service listens on, and return it."""
        for _ in range(_ATTEMPTS):
            with ExitStack() as attempt, suppress(OSError):
                port = 0
                for address in self._tcp:
                    port = bind_port(address, port, attempt)
                stack.push(attempt.pop_all())
                return port
        raise ValueError(f"no port is free on all of {', '.join(address.host for address in self._tcp)}")

    def _remove_sockets(self) -> None:
        for path in self._paths:
            with suppress(OSError):
                remove_stale_socket(path)
