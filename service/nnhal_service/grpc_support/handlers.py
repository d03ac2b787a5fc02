"""Registration of RPC methods with a gRPC server.

Each RPC method of a servicer carries `@handler()`, whose arguments say how the server runs the method:

    registrar = HandlerRegistrar(server, pools, watchdogs, unread, check_of)
    session_pb2_grpc.add_SessionServicer_to_server(servicer, registrar)
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default

from nnhal.errors import HalError
from nnhal.grpc_internals.server_calls import receive_early
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_service.grpc_support.errors import log_error, map_errors, map_stream_errors
from nnhal_service.grpc_support.request_decoding import Decode, Reject, checked_decoder, fail
from nnhal_service.grpc_support.response_stream import QueuedSend
from nnhal_service.grpc_support.stall_watchdog import StallWatchdog
from nnhal_service.grpc_support.unread_responses import UnreadResponses

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class HandlerOptions(NamedTuple):
    """Options of one RPC method.

    Attributes:
        non_blocking: see `handler`.
        raw: see `handler`.
        pool: see `handler`.
        sending_pool: name of the pool that sends the responses of a non-blocking method; "": the method does.
        watches_stream: whether a client of a stream in both directions is watched; other methods do this themselves.
        is_public: whether callers need no admission.
        reject: see `handler`.
        errors: exceptions that become the error of the call. Others are left to gRPC.
    """

    non_blocking: bool = False
    raw: bool = False
    pool: str = ""
    sending_pool: str = ""
    watches_stream: bool = False
    is_public: bool = False
    reject: Reject = fail
    errors: type[BaseException] = BaseException


_GRPC_SERVICES = {
    # Health.Watch sends while it holds a lock, for which the thread of the server waits
    "grpc.health.v1.Health": HandlerOptions(pool="health", sending_pool="sends", is_public=True, errors=HalError),
    "grpc.reflection.v1alpha.ServerReflection": HandlerOptions(
        pool="reflection", watches_stream=True, is_public=True, errors=HalError
    ),
}
"""Options of gRPC's own services, which set the statuses of their calls themselves.

Each has a pool: neither a flood of calls nor one of these services may keep the other from answering.
"""


def handler(
    *, non_blocking: bool = False, raw: bool = False, is_public: bool = False, pool: str = "", reject: Reject = fail
) -> Callable[[Callable[..., Any]], Any]:
    """Decorate an RPC method: its exceptions become the error of the call.

    Args:
        non_blocking: the method takes a function that sends responses as a third argument, and returns before the call
            ends. The call occupies no thread meanwhile.
        raw: requests and responses are bytes, which the method decodes, encodes and counts (`UnreadResponses`) itself.
        is_public: callers need no admission, or the method admits them itself.
        pool: name of the thread pool that runs the method; "": the server's own. Methods that wait for their client
            run on other pools, so that slow clients cannot occupy all threads.
        reject: called instead of the method, with an error and the method's other arguments, if the only request of a
            call cannot be decoded or exceeds a limit; by default it raises the error.
    """

    def mark(method: Callable[..., Any]) -> Any:
        vars(method)["handler_options"] = HandlerOptions(non_blocking, raw, pool, is_public=is_public, reject=reject)
        return method

    return mark


class HandlerRegistrar:
    """Takes the place of a `grpc.Server` when services are added, and registers wrapped handlers with the server.

    A `grpc.ServerInterceptor` could wrap handlers too. But gRPC asks an interceptor for the handler of every call,
    while this class wraps each handler once.

    Args:
        pools: thread pools by the names that `handler` takes.
        watchdogs: cancel calls whose clients have stalled, by the names of the pools; "" for the server's own.
        unread: counts the responses of sessions.
        check_of: returns a function that checks encoded requests of a type before they are decoded.
        on_error: called with the name of the method and the error of each call that fails.
        admit: raises an error if a caller may not use the service. Only for calls without a session: sessions check it.
    """

    def __init__(
        self,
        server: grpc.Server,
        pools: Mapping[str, ThreadPoolExecutor],
        watchdogs: Mapping[str, StallWatchdog],
        unread: UnreadResponses,
        check_of: Callable[[Descriptor], Callable[[bytes], None]],
        on_error: Callable[[str, HalError], None] = lambda method, error: None,
        admit: Callable[[grpc.ServicerContext], object] = lambda context: None,
    ) -> None:
        self._server = server
        self._pools = pools
        self._watchdogs = watchdogs
        self._unread = unread
        self._check_of = check_of
        self._on_error = on_error
        self._admit = admit

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: these are the methods of `add_registered_method_handlers` again, for older releases of gRPC."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Register the methods of a service."""
        self._server.add_registered_method_handlers(
            service, {name: self._wrap(service, name, handler) for name, handler in handlers.items()}
        )

    def _note_error(self, name: str, error: HalError) -> None:
        self._on_error(name, error)
        log_error(name, error)

    def _wrap(self, service: str, method_name: str, original: Handler) -> Handler:
        name = f"{service}.{method_name}"
        requests = "stream" if original.request_streaming else "unary"
        responses = "stream" if original.response_streaming else "unary"
        method = getattr(original, f"{requests}_{responses}")
        if options := _GRPC_SERVICES.get(service):
            options = options._replace(non_blocking=getattr(method, "experimental_non_blocking", False))
        elif (options := getattr(method, "handler_options", None)) is None:
            method, options = _unimplemented(name), HandlerOptions()
        request_type = _request_type(name)
        if not options.is_public and not _has_session(request_type):
            method = self._admitting(method)
        assert original.request_deserializer is not None, "generated code has a deserializer for each method"
        decode = checked_decoder(self._check_of(request_type), bytes if options.raw else original.request_deserializer)
        reject = options.reject
        if original.request_streaming:
            method = _decode_stream(method, decode)
        encode = original.response_serializer
        watchdog = self._watchdogs[options.pool]
        if options.non_blocking:
            method, reject = (self._watch_sends(each, options.sending_pool) for each in (method, reject))
            responses = "stream"  # gRPC knows non-blocking methods of this kind only; one response is a stream of one
        elif options.watches_stream:
            method = _watch_stream(method, watchdog)
        elif not options.raw and requests == responses == "unary":
            assert encode is not None, "generated code has a serializer for each method"
            method, encode = self._count_response(method, encode), None
        if requests == "unary":
            # for gRPC a stream of one: it would wait for the request on the thread itself, and nothing could end that
            method, requests = _take_request(method, watchdog, decode, reject), "stream"
        maps_stream = original.response_streaming and not options.non_blocking
        method = (map_stream_errors if maps_stream else map_errors)(
            method, options.errors, partial(self._note_error, name)
        )
        if not original.request_streaming:
            receive_early(method, watchdog.begin)
        # gRPC looks for these attributes on the function that it calls
        vars(method)["experimental_non_blocking"] = options.non_blocking
        vars(method)["experimental_thread_pool"] = self._pools[options.pool] if options.pool else None
        make_handler = getattr(grpc, f"{requests}_{responses}_rpc_method_handler")
        wrapped: Handler = make_handler(method, None, None if options.raw else encode)
        return wrapped

    def _admitting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method so that it first checks that its caller may use the service."""

        def call(request: Any, context: grpc.ServicerContext, *rest: Any) -> Any:
            self._admit(context)
            return method(request, context, *rest)

        return call

    def _watch_sends(self, method: Callable[..., Any], pool: str) -> Callable[..., Any]:
        """Wrap a non-blocking method so that a slow send cancels the call. Without a pool, the method may block."""
        watchdog, executor = self._watchdogs.get(pool, self._watchdogs[""]), self._pools.get(pool)

        def call(request: Any, context: grpc.ServicerContext, send: Callable[[Any], None]) -> Any:
            watched = watchdog.wrap_send(send, context)
            return method(request, context, QueuedSend(watched, executor) if executor else watched)

        return call

    def _count_response(self, method: Callable[..., Any], encode: Callable[[Any], bytes]) -> Callable[..., bytes]:
        """Wrap a method so that it returns an encoded response, which counts until the client has read it."""

        def call(request: Any, context: grpc.ServicerContext) -> bytes:
            response = encode(method(request, context))
            if token := getattr(request, "session", b""):
                self._unread.count(token, context, len(response))
            return response

        return call


def _take_request(
    method: Callable[..., Any], watchdog: StallWatchdog, decode: Decode, reject: Reject
) -> Callable[..., Any]:
    """Wrap a method with one request as a method with a stream of encoded ones, of which it takes the first."""

    def call(requests: Iterator[bytes], context: grpc.ServicerContext, *rest: Any) -> Any:
        try:
            request = decode(watchdog.first(requests, context))  # nothing refers to the bytes while the method runs
        except HalError as error:
            return reject(error, context, *rest)
        return method(request, context, *rest)

    return call


def _decode_stream(method: Callable[..., Any], decode: Decode) -> Callable[..., Any]:
    """Wrap a method with a stream of requests as one with a stream of encoded requests."""
    return lambda requests, *rest: method(map(decode, requests), *rest)


def _watch_stream(method: Callable[..., Any], watchdog: StallWatchdog) -> Callable[..., Any]:
    """Wrap a method with streams in both directions so that a client that stalls cannot keep the thread."""

    def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        return watchdog.send(method(watchdog.requests(requests, context), context), context)

    return call


def _request_type(name: str) -> Descriptor:
    service, _, method = name.rpartition(".")
    request: Descriptor = Default().FindServiceByName(service).methods_by_name[method].input_type
    return request


def _has_session(request: Descriptor) -> bool:
    """Return whether the calls of a method belong to a session, which `SessionRegistry.get` then checks."""
    fields = list(request.fields)
    while fields:
        field = fields.pop()
        if field.name == "session":
            return True
        if field.containing_oneof is not None and field.message_type is not None:
            fields += field.message_type.fields
    return False


def _unimplemented(name: str) -> Callable[..., NoReturn]:
    def call(*_: object) -> NoReturn:
        reason = f"{name} is not implemented by this release"
        raise HalError(ErrorStatus.GENERAL_FAILURE, reason, kind=ErrorKind.UNIMPLEMENTED)

    return call
