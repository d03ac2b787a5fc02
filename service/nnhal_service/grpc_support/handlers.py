"""Registration of RPC methods with a gRPC server.

Each RPC method of a servicer carries `@handler()`, whose arguments say how the server runs the method:

    registrar = HandlerRegistrar(server, pools)
    session_pb2_grpc.add_SessionServicer_to_server(servicer, registrar)
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, NoReturn, TypeAlias

import grpc

from nnhal.errors import HalError
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_service.grpc_support.errors import map_errors, map_stream_errors
from nnhal_service.grpc_support.request_decoding import check_request, check_requests, without_raising

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_POOLS = {"grpc.health.": "health", "grpc.reflection.": "reflection"}
"""Thread pools of gRPC's own services, by the start of the names of their methods."""


class HandlerOptions(NamedTuple):
    """Options of one RPC method; see `handler`."""

    non_blocking: bool
    raw: bool
    pool: str


def handler(*, non_blocking: bool = False, raw: bool = False, pool: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Decorate an RPC method: its exceptions become the error of the call.

    Args:
        non_blocking: the method takes a function that sends responses as a third argument, and returns before the call
            ends. The call occupies no thread meanwhile.
        raw: requests and responses are bytes, which the method decodes and encodes itself.
        pool: name of the thread pool that runs the method; "": the server's own. Methods that wait for their client
            run on other pools, so that slow clients cannot occupy all threads.
    """

    def mark(method: Callable[..., Any]) -> Any:
        vars(method)["handler_options"] = HandlerOptions(non_blocking, raw, pool)
        return method

    return mark


class HandlerRegistrar:
    """Takes the place of a `grpc.Server` when services are added, and registers wrapped handlers with the server.

    A `grpc.ServerInterceptor` could wrap handlers too. But gRPC asks an interceptor for the handler of every call,
    while this class wraps each handler once.

    Args:
        pools: thread pools by the names that `handler` takes.
    """

    def __init__(self, server: grpc.Server, pools: Mapping[str, ThreadPoolExecutor]) -> None:
        self._server = server
        self._pools = pools

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: these are the methods of `add_registered_method_handlers` again, for older releases of gRPC."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Register the methods of a service."""
        self._server.add_registered_method_handlers(
            service, {name: self._wrap(f"{service}.{name}", handler) for name, handler in handlers.items()}
        )

    def _wrap(self, name: str, original: Handler) -> Handler:
        requests = "stream" if original.request_streaming else "unary"
        responses = "stream" if original.response_streaming else "unary"
        method = getattr(original, f"{requests}_{responses}")
        options = getattr(method, "handler_options", None)
        caught: type[BaseException] = BaseException
        if options is None and name.startswith("nnhal."):
            method, options = _unimplemented(name), HandlerOptions(non_blocking=False, raw=False, pool="")
        elif (
            options is None
        ):  # gRPC's own services for health and reflection set the statuses of their calls themselves
            # neither a flood of calls nor one of these services may keep the other from answering
            pool = next((pool for start, pool in _POOLS.items() if name.startswith(start) and pool in self._pools), "")
            options = HandlerOptions(getattr(method, "experimental_non_blocking", False), raw=False, pool=pool)
            caught = HalError
        if not options.raw:
            method = (check_requests if original.request_streaming else check_request)(method)
        if options.non_blocking:
            responses = "stream"  # gRPC knows non-blocking methods of this kind only; one response is a stream of one
            method = map_errors(method, caught)
        else:
            method = (map_stream_errors if original.response_streaming else map_errors)(method, caught)
        # gRPC looks for these attributes on the function that it calls
        vars(method)["experimental_non_blocking"] = options.non_blocking
        vars(method)["experimental_thread_pool"] = self._pools[options.pool] if options.pool else None
        make_handler = getattr(grpc, f"{requests}_{responses}_rpc_method_handler")
        wrapped: Handler
        if options.raw:
            wrapped = make_handler(method)
        else:
            assert original.request_deserializer is not None, "generated code has a deserializer for each method"
            decode = without_raising(original.request_deserializer)
            wrapped = make_handler(method, decode, original.response_serializer)
        return wrapped


def _unimplemented(name: str) -> Callable[..., NoReturn]:
    def call(*_: object) -> NoReturn:
        reason = f"{name} is not implemented by this release"
        raise HalError(ErrorStatus.GENERAL_FAILURE, reason, kind=ErrorKind.UNIMPLEMENTED)

    return call
