"""The admin process of a supervisor: its addresses, its start, its requests, and its restarts."""

import errno
import json
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from nnhal.address import Address
from nnhal_service.admin.view import AdminError
from nnhal_service.log import event
from nnhal_service.settings import Settings
from nnhal_service.supervisor.channel import Channel, Message
from nnhal_service.supervisor.template import Template
from nnhal_service.unix_socket import file_id, locked_folder, remove_stale_socket

_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_STABLE_S = 10.0
"""Seconds after which the process counts as stable. Its next end is then followed by a start at once."""
_NONE = "none"
_MAX_ANSWER_BYTES = 2**17 - 2**10
"""Largest answer. A channel has messages of up to 2**17 bytes."""

Answer = Callable[[Message], Mapping[str, Any]]
"""Answers a request of the process. May raise AdminError."""


class AdminListener:
    """Addresses of the admin process. The supervisor keeps them while the process is replaced. Close them when done.

    Args:
        settings: the settings.
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
                    self._listen_at(given, settings)
            if given != _NONE and not self.address:
                try:
                    self._listen_by_default(settings.state_dir, addresses)
                except (OSError, ValueError) as error:
                    event("admin-unavailable", logging.WARNING, why=_text(error))
            if settings.http_listen is not None:
                with _naming(f"--http-listen {settings.http_listen}"):
                    self.http = self._listen_on_port("http", Address.parse(settings.http_listen))
            stack.pop_all()

    def _listen_at(self, text: str, settings: Settings) -> None:
        """Listen at the address of the settings.

        Raises:
            ValueError: it is not an address, or reachable without authentication.
            OSError: it cannot be bound.
        """
        address = Address.parse(text)
        if address.kind == "unix":
            self._listen(text)
            return
        if settings.tls_cert is None or not settings.needs_identity:
            raise ValueError("a TCP address needs TLS (--tls-cert, --tls-key) and identities (docs/security.md)")
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
        """Listen on a TCP port, and return its address with the real port.

        Raises:
            OSError: it cannot be bound.
        """
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


class AdminProcess:
    """The admin process, as its supervisor sees it. Close it when done.

    Args:
        listener: its addresses, which are closed with it.
        answer: answers its requests.

    Attributes:
        channel: the supervisor's end of the channel to the process; None while there is none.
        pid: id of the process; 0 while there is none.
    """

    def __init__(self, listener: AdminListener, answer: Answer) -> None:
        self.channel: Channel | None = None
        self.pid = 0
        self._listener = listener
        self._answer = answer
        self._folder: Path | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._ends = 0
        self._is_replaced = False

    @property
    def is_due(self) -> bool:
        """True if the process should be started now."""
        return bool(self._listener.sockets) and self.channel is None and time.monotonic() >= self._start_at

    def start(self, template: Template, settings: Settings, metrics: Path) -> Channel:
        """Start the process, and return the channel to it.

        Args:
            template: forks it.
            settings: the settings.
            metrics: folder of the metrics of the supervisor.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="nnhal-admin-"))
        self._started_at = time.monotonic()
        self.channel, other = Channel.pair()
        message = {
            "admin": str(self._folder),
            "supervisor": os.getpid(),
            "settings": settings.model_dump(mode="json", exclude_unset=True),
            "metrics": str(metrics),
            "sockets": list(self._listener.sockets),
        }
        template.fork_admin(message, [other.fileno(), *(each.fileno() for each in self._listener.sockets.values())])
        other.close()
        return self.channel

    def receive(self) -> bool:
        """Handle a message of the process. Return False if it has ended, or closed the channel."""
        assert self.channel is not None
        received = self.channel.receive()
        if received is None:
            return False
        message, descriptors = received
        for descriptor in descriptors:
            os.close(descriptor)
        if "pid" in message:
            self.pid = message["pid"]
        elif "request" in message:
            self.channel.send({**self._try_answer(message), "number": message.get("number")})
        return True

    def _try_answer(self, message: Message) -> Mapping[str, Any]:
        try:
            answer = self._answer(message)
        except AdminError as error:
            return {"error": str(error)}
        except Exception as error:  # whatever the process sends, the supervisor goes on
            event("admin-request-failed", logging.ERROR, why=f"{type(error).__name__}: {error}")
            return {"error": "the supervisor could not handle the request; see the log"}
        if len(json.dumps(answer)) > _MAX_ANSWER_BYTES:
            return {"error": "the answer of the supervisor is too long"}
        return answer

    def end(self) -> int:
        """End the process, which has a process id, and return its status."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]

    def replace(self) -> None:
        """Have the process end, so that its successor has the current settings. Connections wait for it."""
        if self.pid:
            self._is_replaced = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def note_end(self, how: str) -> None:
        """Clean up after the process, and schedule the next start."""
        if self._is_replaced:
            self._is_replaced = False
            self._clean_up()
            return
        served_s = time.monotonic() - self._started_at
        self._ends = 0 if served_s >= _STABLE_S else self._ends + 1
        delay_s = min(_FIRST_DELAY_S * 2.0 ** (self._ends - 1), _MAX_DELAY_S) if self._ends else 0.0
        event("admin-died", logging.ERROR, pid=self.pid, how=how)
        self._start_at = time.monotonic() + delay_s
        self._clean_up()

    def _clean_up(self) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self.channel is not None:
            self.channel.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.channel, self.pid, self._folder = None, 0, None

    def close(self) -> None:
        """End the process, and give its address up."""
        self._clean_up()
        self._listener.close()


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Name the option in the errors of its address.

    Raises:
        ValueError: the address cannot be used.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{option}: {_text(error)}") from None


def _text(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
