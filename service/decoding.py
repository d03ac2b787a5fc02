"""What is answered to bytes that are no message: an error of ours. (grpc itself says INTERNAL, and logs a stack trace.)

registry = Registry(server)
session_pb2_grpc.add_SessionServicer_to_server(servicer, registry)
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc

from nnhal.errors import HalError, invalid_argument
from service.rpc import abort

Behavior = Callable[..., Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Stands where a request would be. `reason`: what is wrong with its bytes."""

    reason: str

    def error(self) -> HalError:
        """INVALID_ARGUMENT."""
        return invalid_argument(f"the request cannot be decoded: {self.reason}")


class Registry:
    """Takes services as a grpc.Server does, and hands them on with handlers that answer for undecodable requests."""

    def __init__(self, server: grpc.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Nothing to do: these are the registered methods again, in the form of older releases of grpc."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Adds the methods of a service."""
        self._server.add_registered_method_handlers(
            service, {name: _checked(handler) for name, handler in handlers.items()}
        )


_EXTRAS = ("experimental_non_blocking", "experimental_thread_pool")
"""What grpc looks for on the function that answers calls."""

Method = TypeVar("Method", bound=Callable[..., Any])


def in_bytes(method: Method) -> Method:
    """Marks a method that takes its requests, and gives its answers, as bytes: it knows many of them by those."""
    method.in_bytes = True  # type: ignore[attr-defined]
    return method


def _checked(handler: Handler) -> Handler:
    kind, check = _KINDS[handler.request_streaming, handler.response_streaming]
    behavior = getattr(handler, kind)
    if hasattr(behavior, "in_bytes"):
        return _in_bytes(kind, behavior)
    checked = check(behavior)
    for name in _EXTRAS:
        if hasattr(behavior, name):
            setattr(checked, name, getattr(behavior, name))
    decode = handler.request_deserializer
    assert decode is not None
    if hasattr(behavior, "experimental_non_blocking"):
        kind = "unary_stream"  # grpc knows no others of this sort; on the wire one answer is a stream of one
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    handler = make(checked, _lenient(decode), handler.response_serializer)
    return handler


def _in_bytes(kind: str, behavior: Behavior) -> Handler:
    """A handler of a method that decodes and encodes for itself, and ends its calls with errors of ours."""
    handler: Handler = getattr(grpc, f"{kind}_rpc_method_handler")(behavior)
    return handler


def _lenient(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A decoder that never raises: grpc would end the call itself."""

    def decoded(raw: bytes) -> Any:
        try:
            return decode(raw)
        except Exception as error:
            return Undecodable(str(error) or type(error).__name__)

    return decoded


def _one(behavior: Behavior) -> Behavior:
    """For methods with one request."""

    def answer(request: Any, context: grpc.ServicerContext, *rest: Any) -> Any:
        if type(request) is Undecodable:
            abort(context, request.error())
        return behavior(request, context, *rest)

    return answer


def _many(behavior: Behavior) -> Behavior:
    """For methods with a stream of requests: the method meets the error when it comes to the bad one."""

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        return behavior(_decoded(requests), context)

    return answer


def _both(behavior: Behavior) -> Behavior:
    """The same for those whose answer is a stream too, ours or not."""

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from behavior(_decoded(requests), context)
        except HalError as error:
            abort(context, error)

    return answer


def _decoded(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        if type(request) is Undecodable:
            raise request.error()
        yield request


_KINDS: Mapping[tuple[bool, bool], tuple[str, Callable[[Behavior], Behavior]]] = {
    (False, False): ("unary_unary", _one),
    (False, True): ("unary_stream", _one),
    (True, False): ("stream_unary", _many),
    (True, True): ("stream_stream", _both),
}
"""By whether request and response are streams: what grpc calls such a method, and how it is checked."""
