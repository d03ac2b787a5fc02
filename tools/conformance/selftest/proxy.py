"""A transparent gRPC proxy of the contract, with room for one fault.

All nine services are built from their descriptors. Metadata, deadlines, error details and cancellation pass both ways.
A hook takes the place of chosen methods: it sees the request, forwards what it likes, and answers what it likes.
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

from nnhal.failures import DETAILS_KEY
from nnhal.v1 import error_pb2
from tools.conformance.target import SERVICES

THREADS = 256
"""Calls at once: each holds a thread until it has ended, also the stream of a session."""

_FOR_EVER_S = 1e9
"""grpc gives a call without a deadline a time like this, or a longer one."""

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]

Hook = Callable[["Call", Any], Any]
"""Answers a call: (call, request) gives the response, or an iterator of responses where the method streams them.

The request is an iterator where the method streams requests. Raise Refusal, or let what `forward` raises pass.
"""


class Refusal(Exception):
    """The error that a call ends with. Without a detail it does not say why in the contract's way."""

    def __init__(self, code: grpc.StatusCode, detail: error_pb2.ErrorDetail | None = None) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"{code.name}: {detail.reason if detail else 'no detail'}")


class Call:
    """One call on its way through the proxy.

    Attributes:
        method: "Service.Method", e.g. "Device.PrepareModel".
        streams: whether the method streams its responses.
        kept: what a fault keeps from call to call; one for each proxy.
    """

    def __init__(
        self, method: str, kept: dict[Any, Any], upstreams: dict[str, Any], context: grpc.ServicerContext
    ) -> None:
        self.method, self.kept = method, kept
        self._upstreams, self._upstream = upstreams, upstreams[method]
        self.streams = not hasattr(self._upstream, "future")
        self._context = context
        self._initial_passed = False

    def forward(self, request: Any) -> Any:
        """Makes the call on the device: gives the response, or an iterator of responses.

        Raises:
            grpc.RpcError: the device's error; the iterator raises it too.
        """
        if isinstance(request, Iterator):
            request = self._while_there(request)
        start = self._upstream if self.streams else self._upstream.future
        call = start(request, timeout=self._timeout(), metadata=self._metadata())
        if not self._context.add_callback(call.cancel):
            call.cancel()
        return self._responses(call) if self.streams else self._response(call)

    def ask(self, method: str, request: Any) -> Any:
        """Makes another call on the device, e.g. "Cache.Read": gives the response, or an iterator of responses.

        Raises:
            grpc.RpcError: as `forward`.
        """
        return self._upstreams[method](request, timeout=self._timeout(), metadata=self._metadata())

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

    def _while_there(self, requests: Iterator[Any]) -> Iterator[Any]:
        """The client's requests. Where it has gone they end: its cancellation tells the device."""
        try:
            yield from requests
        except Exception:
            if self._context.is_active():
                raise

    def _timeout(self) -> float | None:
        remaining = self._context.time_remaining()
        return None if remaining is None or remaining > _FOR_EVER_S else remaining

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        pairs = self._context.invocation_metadata()
        return tuple((key, value) for key, value in pairs if key != "user-agent" and not key.startswith("grpc-"))


class Proxy:
    """A proxy on a private Unix socket. Use it as a context manager.

    Attributes:
        address: where it listens.

    Args:
        target: address of the device's server.
        hooks: by method; a key is a pattern on "Service.Method", e.g. "Device.PrepareModel*".
    """

    def __init__(self, target: str, hooks: dict[str, Hook] | None = None) -> None:
        self._hooks = hooks or {}
        self._kept: dict[Any, Any] = {}
        self._upstreams: dict[str, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="nnhal-proxy-")
        self.address = f"unix:{Path(self._folder.name) / 'socket'}"
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="nnhal-proxy")
        self._server = grpc.server(self._threads, options=_OPTIONS)
        for service in services():
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
        hook = next((hook for pattern, hook in self._hooks.items() if fnmatch.fnmatchcase(name, pattern)), Call.forward)
        answer = _stream if method.server_streaming else _single

        def behave(message: Any, context: grpc.ServicerContext) -> Any:
            return answer(hook, Call(name, self._kept, self._upstreams, context), message, context)

        return getattr(grpc, f"{kind}_rpc_method_handler")(
            behave, request_deserializer=request.FromString, response_serializer=response.SerializeToString
        )


def services() -> Iterable[ServiceDescriptor]:
    """The services of the contract."""
    return [descriptor for descriptor, _ in SERVICES.values()]


def _kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _single(hook: Hook, call: Call, request: Any, context: grpc.ServicerContext) -> Any:
    try:
        return hook(call, request)
    except (Refusal, grpc.RpcError) as error:
        return _end(context, error)


def _stream(hook: Hook, call: Call, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    try:
        yield from hook(call, request)
    except (Refusal, grpc.RpcError) as error:
        _end(context, error)


def _end(context: grpc.ServicerContext, error: Exception) -> None:
    """Ends the call with an error: the device's own as it came, or one that a fault made."""
    if isinstance(error, grpc.Call):
        context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
        context.abort(error.code(), error.details() or "")
    if not isinstance(error, Refusal):
        raise error  # grpc's own word for a client that has gone
    if error.detail is not None:
        context.set_trailing_metadata(((DETAILS_KEY, packed(error.code, error.detail)),))
    context.abort(error.code, error.detail.reason if error.detail is not None else "")


def packed(code: grpc.StatusCode, detail: error_pb2.ErrorDetail) -> bytes:
    """The trailer of an error in the contract's form."""
    message = AnyMessage()
    message.Pack(detail)
    return error_pb2.RpcStatus(code=code.value[0], message=detail.reason, details=[message]).SerializeToString()


def detail_of(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    """What an error says in the contract's form; None where it says nothing."""
    assert isinstance(error, grpc.Call)
    trailer = dict(error.trailing_metadata() or ()).get(DETAILS_KEY)
    if not isinstance(trailer, bytes):
        return None
    detail = error_pb2.ErrorDetail()
    found = any(message.Unpack(detail) for message in error_pb2.RpcStatus.FromString(trailer).details)
    return detail if found else None
