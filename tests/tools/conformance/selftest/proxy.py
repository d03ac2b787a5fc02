"""Transparent gRPC proxy for all services of the contract and gRPC's health service, with hooks that inject faults.

The services are built from their descriptors. Metadata, deadlines, error details and cancellation pass in both
directions. A hook replaces chosen methods: it receives the request, and may forward it, change it or answer it.
"""

import fnmatch
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from nnhal.errors import DETAILS_KEY
from nnhal.services import SERVICES
from nnhal.v1 import error_pb2

THREADS = 256
"""Maximum number of concurrent calls. Each occupies a thread until it ends, including the stream of a session."""

_NO_DEADLINE_S = 1e9
"""gRPC reports at least this remaining time for a call without a deadline."""

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]

Hook = Callable[["ProxyCall", Any], Any]
"""Function of a call and its request that returns the response, or an iterator of responses.

The request is an iterator if the method streams requests. A hook may raise InjectedError, or let errors of `forward`
pass.
"""


class InjectedError(Exception):
    """Error that a hook ends a call with.

    Attributes:
        code: the gRPC status code.
        detail: the error detail in the trailer; None for an error without a service-specific status.
    """

    def __init__(self, code: grpc.StatusCode, detail: error_pb2.ErrorDetail | None = None) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"{code.name}: {detail.reason if detail else 'no detail'}")


class ProxyCall:
    """Call on its way through the proxy.

    Attributes:
        method: "Service.Method", for example "Device.PrepareModel".
        streams_responses: whether the method streams its responses.
        state: a dictionary that the hooks of a proxy share between calls.
    """

    def __init__(
        self, method: str, state: dict[Any, Any], upstreams: dict[str, Any], context: grpc.ServicerContext
    ) -> None:
        self.method, self.state = method, state
        self._upstreams, self._upstream = upstreams, upstreams[method]
        self.streams_responses = not hasattr(self._upstream, "future")
        self._context = context
        self._initial_passed = False

    def forward(self, request: Any) -> Any:
        """Make the call on the device and return the response, or an iterator of responses.

        Raises:
            grpc.RpcError: the error of the device. The iterator raises it too.
        """
        if isinstance(request, Iterator):
            request = self._requests_until_cancelled(request)
        elif self.method == "Session.Open":
            request.accept_redirect = False  # a redirected client would leave the proxy
        start = self._upstream if self.streams_responses else self._upstream.future
        call = start(request, timeout=self._timeout(), metadata=self._metadata())
        if not self._context.add_callback(call.cancel):
            call.cancel()
        return self._responses(call) if self.streams_responses else self._response(call)

    def call_device(self, method: str, request: Any) -> Any:
        """Make another call on the device, for example "Cache.Read".

        Returns:
            The response, or an iterator of responses.

        Raises:
            grpc.RpcError: the error of the device. The iterator raises it too.
        """
        return self._upstreams[method](request, timeout=self._timeout(), metadata=self._metadata())

    def on_end(self, callback: Callable[[], None]) -> bool:
        """Call a function when the call of the client ends. Return False if it has ended already."""
        return bool(self._context.add_callback(callback))

    def _response(self, call: Any) -> Any:
        try:
            response = call.result()
        except grpc.FutureCancelledError:
            raise call from None
        self._pass_metadata(call)
        return response

    def _responses(self, call: Any) -> Iterator[Any]:
        self._pass_initial(call)
        yield from call
        self._pass_metadata(call)

    def _pass_metadata(self, call: Any) -> None:
        self._pass_initial(call)
        self._context.set_trailing_metadata(tuple(call.trailing_metadata() or ()))

    def _pass_initial(self, call: Any) -> None:
        metadata = tuple(call.initial_metadata() or ())
        if metadata and not self._initial_passed:
            self._context.send_initial_metadata(metadata)
        self._initial_passed = True

    def _requests_until_cancelled(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Yield the client's requests. If the client cancels, they end, and the cancellation reaches the device."""
        try:
            yield from requests
        except Exception:
            if self._context.is_active():
                raise

    def _timeout(self) -> float | None:
        remaining = self._context.time_remaining()
        return None if remaining is None or remaining > _NO_DEADLINE_S else remaining

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        pairs = self._context.invocation_metadata()
        return tuple((key, value) for key, value in pairs if key != "user-agent" and not key.startswith("grpc-"))


class Proxy:
    """Proxy on a private Unix socket. Use it as a context manager.

    Attributes:
        address: the address that it listens on.

    Args:
        target: the address of the device's server.
        hooks: the hooks by method; a key is a pattern on "Service.Method", for example "Device.PrepareModel*".
    """

    def __init__(self, target: str, hooks: dict[str, Hook] | None = None) -> None:
        self._hooks = hooks or {}
        self._state: dict[Any, Any] = {}
        self._upstreams: dict[str, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="nnhal-proxy-")
        self.address = f"unix:{Path(self._folder.name) / 'socket'}"
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="nnhal-proxy")
        self._server = grpc.server(self._threads, options=_OPTIONS)
        for service in (*services(), _HEALTH):
            handlers = {method.name: self._handler(service, method) for method in service.methods}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        self._server.add_insecure_port(self.address)

    def __enter__(self) -> "Proxy":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()
        self._channel.close()
        self._threads.shutdown()
        self._folder.cleanup()

    def _handler(self, service: ServiceDescriptor, method: MethodDescriptor) -> Any:
        kind = f"{_kind(method.client_streaming)}_{_kind(method.server_streaming)}"
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        upstream = getattr(self._channel, kind)(
            f"/{service.full_name}/{method.name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        name = f"{service.name}.{method.name}"
        self._upstreams[name] = upstream
        hook = next(
            (hook for pattern, hook in self._hooks.items() if fnmatch.fnmatchcase(name, pattern)), ProxyCall.forward
        )
        respond = _stream if method.server_streaming else _single

        def handle(message: Any, context: grpc.ServicerContext) -> Any:
            return respond(hook, ProxyCall(name, self._state, self._upstreams, context), message, context)

        return getattr(grpc, f"{kind}_rpc_method_handler")(
            handle, request_deserializer=request.FromString, response_serializer=response.SerializeToString
        )


def services() -> Iterable[ServiceDescriptor]:
    """Return the services of the contract."""
    return [service.descriptor for service in SERVICES.values()]


def _kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _single(hook: Hook, call: ProxyCall, request: Any, context: grpc.ServicerContext) -> Any:
    try:
        return hook(call, request)
    except (InjectedError, grpc.RpcError) as error:
        return _end(context, error)


def _stream(hook: Hook, call: ProxyCall, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    try:
        yield from hook(call, request)
    except (InjectedError, grpc.RpcError) as error:
        _end(context, error)


def _end(context: grpc.ServicerContext, error: Exception) -> None:
    """End the call with an error of the device, unchanged, or with an injected one."""
    if isinstance(error, grpc.Call):
        context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
        context.abort(error.code(), error.details() or "")
    if not isinstance(error, InjectedError):
        raise error  # gRPC's error for a cancelled call
    if error.detail is not None:
        context.set_trailing_metadata(((DETAILS_KEY, pack_error(error.code, error.detail)),))
    context.abort(error.code, error.detail.reason if error.detail is not None else "")


def pack_error(code: grpc.StatusCode, detail: error_pb2.ErrorDetail) -> bytes:
    """Return the value of the trailer that carries an error detail."""
    message = AnyMessage()
    message.Pack(detail)
    return error_pb2.RpcStatus(code=code.value[0], message=detail.reason, details=[message]).SerializeToString()
