"""Security of all connections of a device: those to other addresses and later ones have the same credentials."""

import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from nnhal.address import Address
from nnhal.client.security.options import NO_OPTIONS, SecurityOptions, check_options, split_target, with_environment
from nnhal.client.security.token import AuthorizedChannel, Metadata, metadata_of
from nnhal.errors import HalError, argument_error
from nnhal.types import ErrorStatus

if TYPE_CHECKING:
    from nnhal.client.security.credentials import ClientCertificates

ChannelOptions = list[tuple[str, Any]]


class SecurityProblem(OSError):
    """A connection that fails because of TLS. The text says why.

    Attributes:
        is_certain: another attempt would fail too. Otherwise, a service that ends may look the same.
    """

    def __init__(self, text: str, *, is_certain: bool) -> None:
        super().__init__(text)
        self.is_certain = is_certain


class Security:
    """Credentials of a device. Thread safe. Files of certificates are read again for each connection.

    Args:
        target: address of the service, without a scheme; None to start one.
        options: the options, which `check_options` has checked.

    Raises:
        HalError: INVALID_ARGUMENT: a file is unreadable or has other contents; a token would be sent without TLS to
            another machine.
    """

    def __init__(self, target: str | None = None, options: SecurityOptions = NO_OPTIONS) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._certificates: ClientCertificates | None = None
        self._loaded: grpc.ChannelCredentials | None = None
        self._credentials = options["credentials"]
        self._uses_tls = bool(options["tls"]) or any(options[name] for name in ("ca", "cert", "server_name"))
        self._uses_tls = self._uses_tls and self._credentials is None
        token = options["token"]
        self._metadata = metadata_of(token) if isinstance(token, str) else None
        self._host = ""
        if target is not None:
            self._host = options["server_name"] or Address.parse(target).host
            self._require_secure(target)
            self._load()
            if callable(token):
                self._call_metadata()

    def channel(self, target: str, options: ChannelOptions) -> grpc.Channel:
        """Return a channel to an address.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the address is that of a redirect that the credentials are not for.
        """
        return cast(grpc.Channel, self._open(grpc, target, options))

    def aio_channel(self, target: str, options: ChannelOptions) -> grpc.aio.Channel:
        """Return the same for asyncio.

        Raises:
            HalError: as for `channel`.
        """
        return cast(grpc.aio.Channel, self._open(grpc.aio, target, options))

    def _open(self, api: ModuleType, target: str, options: ChannelOptions) -> Any:
        """Return a channel of one of the two programming interfaces of gRPC."""
        credentials = self._credentials_for(target)
        if credentials is None:
            channel = api.insecure_channel(target, options)
        else:
            channel = api.secure_channel(target, credentials, [*options, *self._name_options(target)])
        return channel if self._options["token"] is None else AuthorizedChannel(channel, self._call_metadata)

    def problem(self, target: str, error: grpc.RpcError | None) -> OSError | None:
        """Return the reason of TLS for which a call failed, or None.

        Args:
            target: address of the call.
            error: the error; None if it took too long.
        """
        details = error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
        is_unavailable = details is not None and error.code() == grpc.StatusCode.UNAVAILABLE  # type: ignore[union-attr]
        if not is_unavailable or Address.parse(target).kind != "tcp":
            return None
        from nnhal.client.security import tls_problem  # noqa: PLC0415 - only failures need Python's TLS

        if self._credentials is None and not self._uses_tls:
            found = tls_problem.plaintext_problem(target)
        else:
            found = tls_problem.tls_problem(target, self._host, self._certificates, details or "")
        if found is None:
            return None
        return SecurityProblem(f"cannot connect to {target}: {found.text}", is_certain=found.is_certain)

    def _credentials_for(self, target: str) -> grpc.ChannelCredentials | None:
        self._require_secure(target)
        if self._credentials is not None or not self._uses_tls:
            return self._credentials
        if Address.parse(target).kind == "unix":
            reason = f"the service redirects to {target}, but connections with TLS stay on TCP"
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, reason)
        return self._load()

    def _load(self) -> grpc.ChannelCredentials | None:
        """Return credentials made of the present files; of the previous ones if these cannot be read."""
        if not self._uses_tls:
            return None
        from nnhal.client.security.credentials import ClientCertificates  # noqa: PLC0415 - imports Python's TLS

        with self._lock:
            try:
                if (certificates := ClientCertificates.read(self._options)) != self._certificates:
                    self._loaded, self._certificates = certificates.credentials(), certificates
            except HalError:
                if self._certificates is None:
                    raise
            return self._loaded

    def _name_options(self, target: str) -> ChannelOptions:
        """Return the option for the expected name, unless it is the host of the address anyway."""
        name = self._host
        return [("grpc.ssl_target_name_override", name)] if name and Address.parse(target).host != name else []

    def _require_secure(self, target: str) -> None:
        """Check that a token does not leave this machine unencrypted."""
        is_encrypted = self._uses_tls or self._credentials is not None
        if self._options["token"] is not None and not is_encrypted and not Address.parse(target).is_local:
            raise argument_error(f"a token is given for {target}, which needs TLS: others could read it on the way")

    def _call_metadata(self) -> Metadata:
        if self._metadata is not None:
            return self._metadata
        token = self._options["token"]
        assert callable(token)
        return metadata_of(token())


def secured(target: str | None, options: SecurityOptions) -> tuple[str | None, Security]:
    """Return the address in a target, and the security of connections to it.

    Args:
        target: HOST:PORT, grpcs://HOST:PORT, unix:PATH, or None.
        options: the options of `connect`.

    Raises:
        TypeError: an option has a wrong type.
        HalError: INVALID_ARGUMENT: options contradict each other or the address, or cannot be used.
    """
    address, is_secure = split_target(target)
    if is_secure and options["tls"] is False:
        raise argument_error(f"tls is False, but the target is {target}")
    if is_secure and options["credentials"] is None:
        options = {**options, "tls": True}
    check_options(address, options)
    return address, Security(address, with_environment(address, options))


PLAIN = Security()
"""Security of connections without credentials."""
