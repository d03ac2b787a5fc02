"""Devices, how to connect to them, and preparations in progress.

Hand-written: `prepare` returns a future, where the asyncio client has a coroutine.
"""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, NoReturn, TypeVar, Unpack, overload

import grpc

from nnhal.client.core.arguments import InputShapes, ModelSource, check_connect
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.cache import SharedDeadline
from nnhal.client.core.handles import Closeable, ProcessBound, description
from nnhal.client.core.reconnect import FindNeeds
from nnhal.client.core.session import Transport
from nnhal.client.fallback.preparation import PreparationArguments, PrepareOptions
from nnhal.client.fleet.needs import session_needs
from nnhal.client.fleet.targets import resolve_target
from nnhal.client.security.options import PemSource, SecurityOptions, TokenSource
from nnhal.client.sync.buffer import Buffer
from nnhal.client.sync.fallback import FallbackDevice
from nnhal.client.sync.grpc_calls import PreparationCall
from nnhal.client.sync.partitioned_model import PartitionedModel
from nnhal.client.sync.preparation import load_model
from nnhal.client.sync.prepared_model import PreparedModel
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.types import ExecutionPreference, Priority

__all__ = [
    "Buffer",
    "Device",
    "Inputs",
    "Outputs",
    "PartitionedModel",
    "Preparation",
    "PreparedModel",
    "connect",
    "load",
]

R = TypeVar("R")


def connect(
    target: str | None = None,
    *,
    device: str = "",
    timeout: float = 10.0,
    transport: Transport = "auto",
    client_name: str = "",
    credentials: grpc.ChannelCredentials | None = None,
    tls: bool | None = None,
    ca: PemSource | None = None,
    cert: PemSource | None = None,
    key: PemSource | None = None,
    server_name: str = "",
    token: TokenSource | None = None,
    model: ModelSource | None = None,
    accelerator: str = "",
) -> "Device":
    """Open a session on a service.

    Args:
        target: "HOST:PORT", "unix:PATH", or "grpcs://HOST:PORT" for TLS. None starts a service in a child process,
            which stops with the device. "ray://HOST" is the head of a cluster of Ray with a fleet (docs/fleet.md).
        device: name of the device; by default the server's first.
        timeout: seconds to wait for the service to respond. If nothing listens at the address, `connect` fails at once.
        transport: "auto" uses shared memory if the service is on this machine; "grpc" never does.
        client_name: name of this client in the log of the service; by default the name of the program.
        credentials: credentials of gRPC, in place of `tls`, `ca`, `cert` and `key`.
        tls: whether to use TLS; the default is to use it if another option needs it, or the target is "grpcs://…".
        ca: certificates of the authorities that the service may have, as a path or as bytes in PEM; by default those
            that gRPC trusts.
        cert: certificate of this client and those of its authorities, in the same forms.
        key: its private key, in the same forms; it may be in `cert`. Files are read again for each connection.
        server_name: name that the certificate of the service must have; by default the host of the target.
        token: bearer token, sent with each call; or a function that returns the current one. Never sent to another
            machine without TLS.
        model: the model that this client is about to use, by which a fleet chooses the service.
        accelerator: name of an accelerator, a backend or a device that the service of a fleet must have.

    Raises:
        DeadObjectError: the service cannot be reached, does not respond in time, or does not start.
        HalError: INVALID_ARGUMENT: the target is not an address, the options for TLS cannot be used, or there is
            no such device. DEVICE_UNAVAILABLE: the service and the client do not agree on TLS.
        LinuxRequiredError: there is no target, and this system is not Linux.
        TypeError: an argument has a wrong type.
    """
    options = SecurityOptions(
        credentials=credentials, tls=tls, ca=ca, cert=cert, key=key, server_name=server_name, token=token
    )
    check_connect(target, device, timeout, transport, client_name)
    needs = session_needs(None if model is None else load_model(model), accelerator)
    return open_device(target, device, timeout, transport, client_name, options, lambda: needs)


def open_device(
    target: str | None,
    device: str,
    timeout: float,
    transport: Transport,
    client_name: str,
    options: SecurityOptions,
    needs: FindNeeds,
) -> "Device":
    """Open a session for arguments of `connect` that have been checked. Errors are those of `connect`."""
    found = resolve_target(target, options, timeout)
    session = ReconnectingSession(found, timeout, transport, client_name, needs)
    session.open(device)
    return Device(session, device)


def load(
    model: ModelSource,
    target: str | None = None,
    *,
    signature: str | None = None,
    shapes: InputShapes | None = None,
    cache: bool = False,
    **options: Any,
) -> PreparedModel | PartitionedModel:
    """Load a model and return it ready to be called: `outputs = model(image)`.

    Inputs are arrays by position or by name. The model has a connection of its own, which ends when it is closed or its
    `with` block ends. Operations that the device does not support run on this machine.

    Args:
        model: a model, or the path or the bytes of a .tflite file.
        target: the service, as for `nnhal.connect`. None starts a service in a child process.
        signature: like `shapes` and `cache` as for `Device.prepare`.
        shapes: shapes of inputs by name, in place of those of the file.
        cache: whether to use the cache of the service.
        options: further arguments of `nnhal.connect`.

    Raises:
        TypeError: the model is neither a model nor a path nor bytes, or an option is unknown.
        TfliteError, OSError, ImportError: see `nnhal.tflite.load`.
        HalError: see `nnhal.connect` and `Device.prepare`.
    """
    loaded = load_model(model, signature, shapes)  # before a service starts for a file that cannot be used
    device = connect(target, **options)
    try:
        prepared = device.prepare(loaded, fallback=True, cache=cache).result()
    except BaseException:
        device.close()
        raise
    prepared.owner = device
    return prepared


class Device(FallbackDevice, Closeable):
    """Device of a service, in a session of its own. Close it, or use it as a context manager."""

    @overload
    def prepare(
        self, model: ModelSource, *, fallback: Literal[False] = False, **options: Unpack[PrepareOptions]
    ) -> "Preparation[PreparedModel]": ...

    @overload
    def prepare(
        self, model: ModelSource, *, fallback: bool, **options: Unpack[PrepareOptions]
    ) -> "Preparation[PreparedModel | PartitionedModel]": ...

    def prepare(
        self,
        model: ModelSource,
        *,
        fallback: bool = False,
        cache: bool = False,
        token: bytes | None = None,
        preference: int | str = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int | str = Priority.MEDIUM,
        deadline: float | None = None,
        signature: str | None = None,
        shapes: InputShapes | None = None,
    ) -> "Preparation[Any]":
        """Start to prepare a model.

        With `cache` or `token`, the service first looks for the model in its cache, without receiving it. On a miss the
        model is sent, prepared and saved, and `PreparedModel.cache` says so.

        A prepared model survives a restart of the service: `execute` then reconnects, prepares it again, from the cache
        if it uses the cache, and repeats the execution. For that, the prepared model keeps the model.

        With `fallback`, operations that the device does not support run on this machine, in a service that starts with
        the first such model. The result is then a `PartitionedModel`, whose `placement` has the cost. For all other
        models, nothing changes.

        Args:
            model: a model, or the path or the bytes of a .tflite file.
            fallback: whether this machine runs operations that the device does not support.
            cache: whether to use the cache, with a token derived from the model and the device.
            token: use the cache with these 32 bytes, which identify this model, preference and priority.
            preference: an ExecutionPreference or its name, for example "sustained_speed".
            priority: a Priority or its name ("low", "medium", "high"), among this client's own models.
            deadline: seconds from now. If it is missed, the preparation ends with MISSED_DEADLINE_*.
            signature: key of a signature of the .tflite file, by default its main subgraph.
            shapes: shapes of inputs by name, in place of those of the file: `{"image": (8, 224, 224, 3)}` is a batch of
                eight. None is an unknown dimension.

        Returns:
            a future of the prepared model. Its `result()` raises the errors of the preparation.

        Raises:
            HalError: INVALID_ARGUMENT: the length of the token, or an unknown name.
            TypeError: the model is neither a model nor a path nor bytes.
            TfliteError, OSError, ImportError: see `nnhal.tflite.load`.
        """
        model = load_model(model, signature, shapes)
        options = PreparationArguments.of(preference, priority, cache, token)
        end = SharedDeadline(deadline)
        if fallback:
            return Preparation(lambda call: self._prepare_with_fallback(model, options, call, end))
        spec = options.spec(model, self.name)
        return Preparation(lambda call: self._prepare_spec(spec, call, end))


class Preparation(ProcessBound, Future[R]):
    """Preparation in progress: a `concurrent.futures.Future` of the prepared model.

    `result()` raises the HalError of the preparation. `cancel()` abandons the work on the service.
    """

    def __init__(self, work: Callable[[PreparationCall], R]) -> None:
        super().__init__()
        self._work = work
        self._call = PreparationCall()
        context = contextvars.copy_context()  # which has the trace of the application
        threading.Thread(target=context.run, args=(self._run,), name="nnhal-preparation", daemon=True).start()

    def __repr__(self) -> str:
        return description(self, "cancelled" if self.cancelled() else "done" if self.done() else "in progress")

    def __getattr__(self, name: str) -> NoReturn:
        hint = "; result() returns the prepared model" if hasattr(PreparedModel, name) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def cancel(self) -> bool:
        """Abandon the work, unless it has finished."""
        cancelled = super().cancel()
        if cancelled:
            self._call.cancel()
        return cancelled

    def _run(self) -> None:
        prepared: R | None = None
        failure: BaseException | None = None
        try:
            prepared = self._work(self._call)
        except BaseException as error:
            failure = error
        if not self.set_running_or_notify_cancel():
            return
        if prepared is not None:
            self.set_result(prepared)
        else:
            self.set_exception(failure)
