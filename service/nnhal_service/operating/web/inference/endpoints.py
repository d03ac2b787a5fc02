"""Endpoints of the Open Inference Protocol over HTTP: paths, the methods of the protocol behind them, and errors."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import grpc
from anyio import CapacityLimiter, to_thread
from google.protobuf.message import Message
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nnhal.admin.plain import to_plain
from nnhal.errors import HalError, invalid_argument
from nnhal.inference import open_inference_pb2 as messages
from nnhal_service.grpc_support.errors import status_of
from nnhal_service.identity.http_caller import IdentifiedCaller
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.web.access import http_caller
from nnhal_service.operating.web.inference.bodies import (
    BodyMemory,
    compress,
    decompress,
    expected_size,
    read_body,
)
from nnhal_service.operating.web.inference.json_messages import (
    Json,
    JsonRequest,
    read_infer_request,
    read_object,
    set_parameters,
    write_infer_response,
)
from nnhal_service.operating.web.inference.worker_calls import Call, WorkerCalls
from nnhal_service.rpc.inference import plain_parameters

PREFIX = "/v2"
_MODEL = f"{PREFIX}/models/{{name}}"
_SEND_S = 60.0
"""Seconds that a client may take to read a response."""
_MAX_FIELDS_BYTES = 65536
"""Largest body of a request that runs no model."""
_DECODERS, _LARGE_DECODERS, _LARGE_BYTES = 2, 1, 2**16
"""Numbers of small and of large bodies that are decoded or encoded at once, and the size from which on they are large.

Their values take more memory than their bytes. Small ones do not wait for large ones.
"""
_CALLERS = 16
"""Number of callers that are identified at once."""
_NEEDS_USER = "SystemSharedMemoryRegister"
_HEADER_LENGTH = "inference-header-content-length"
_LENGTH_DIGITS = 18
_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""HTTP statuses of errors; 500 for others."""

_NO_HEADERS: Mapping[str, str] = {}

Identify: TypeAlias = Callable[..., IdentifiedCaller]
"""Returns who calls, see `ReloadingAccess.identify`. Thread safe."""
Handler: TypeAlias = Callable[[Request, bytes], Awaitable[Response]]
"""Returns the response of a request, whose body it gets."""
Fields: TypeAlias = Mapping[str, Json]


class Endpoint(NamedTuple):
    """Endpoint that maps to a method of the protocol.

    Attributes:
        convert: returns the content of a response.
        renamed: fields of the request by the names that they have in the path.
    """

    http_method: str
    path: str
    method: str
    convert: Callable[[Any], Json] = to_plain
    renamed: Mapping[str, str] = {}

    def request(self, fields: Fields) -> Message:
        """Return the request of the method.

        Raises:
            HalError: INVALID_ARGUMENT: there is an unknown field, or one with a wrong type.
        """
        fields = {self.renamed.get(name, name): value for name, value in fields.items()}
        parameters = fields.pop("parameters", {})
        try:
            message: Message = getattr(messages, f"{self.method}Request")(**fields)
        except (TypeError, ValueError) as error:
            raise invalid_argument(f"invalid request: {error}") from None
        if parameters:
            if not isinstance(parameters, dict) or not hasattr(message, "parameters"):
                raise invalid_argument(f"parameters are {parameters!r:.100}; expected none")
            set_parameters(message.parameters, parameters)
        return message


def _metadata(message: messages.ModelMetadataResponse) -> Json:
    content = to_plain(message)
    for plain, tensor in zip(content["inputs"] + content["outputs"], [*message.inputs, *message.outputs], strict=True):
        plain["parameters"] = plain_parameters(tensor.parameters)
    return content


def _config(message: messages.ModelConfigResponse) -> Json:
    content = to_plain(message.config)
    for tensor in content["input"] + content["output"]:
        tensor["data_type"] = messages.DataType.Name(tensor["data_type"])
    return content


def _regions(message: messages.SystemSharedMemoryStatusResponse) -> Json:
    return [to_plain(region) for region in message.regions.values()]


_NAMED = {"name": "model_name"}
_REGIONS = f"{PREFIX}/systemsharedmemory"
ENDPOINTS = (
    Endpoint("GET", PREFIX, "ServerMetadata"),
    Endpoint("GET", f"{PREFIX}/health/ready", "ServerReady"),
    Endpoint("GET", f"{PREFIX}/models/stats", "ModelStatistics"),  # before a model of this name
    Endpoint("GET", _MODEL, "ModelMetadata", _metadata),
    Endpoint("GET", f"{_MODEL}/ready", "ModelReady"),
    Endpoint("GET", f"{_MODEL}/stats", "ModelStatistics"),
    Endpoint("GET", f"{_MODEL}/config", "ModelConfig", _config),
    Endpoint("POST", f"{PREFIX}/repository/index", "RepositoryIndex", lambda message: to_plain(message)["models"]),
    Endpoint("POST", f"{PREFIX}/repository/models/{{name}}/load", "RepositoryModelLoad", renamed=_NAMED),
    Endpoint("POST", f"{PREFIX}/repository/models/{{name}}/unload", "RepositoryModelUnload", renamed=_NAMED),
    Endpoint("GET", f"{_REGIONS}/status", "SystemSharedMemoryStatus", _regions),
    Endpoint("GET", f"{_REGIONS}/region/{{name}}/status", "SystemSharedMemoryStatus", _regions),
    Endpoint("POST", f"{_REGIONS}/region/{{name}}/register", "SystemSharedMemoryRegister"),
    Endpoint("POST", f"{_REGIONS}/unregister", "SystemSharedMemoryUnregister"),
    Endpoint("POST", f"{_REGIONS}/region/{{name}}/unregister", "SystemSharedMemoryUnregister"),
)
"""Those but the requests to run models. Paths of a model may have /versions/VERSION behind its name."""


def _paths(path: str) -> list[str]:
    """Return a path, and that with a version if it may have one."""
    return [path, path.replace("{name}", "{name}/versions/{version}")] if path.startswith(_MODEL) else [path]


class InferenceEndpoints:
    """The endpoints of a service. For one event loop.

    Args:
        limit: size of the largest body.
    """

    def __init__(self, calls: WorkerCalls, identify: Identify, limit: int) -> None:
        self._calls = calls
        self._identify = identify
        self._limit = limit
        self._memory = BodyMemory()
        self._callers = CapacityLimiter(_CALLERS)  # not those of all: readers of metrics must not keep it waiting
        self._decoders, self._large_decoders = CapacityLimiter(_DECODERS), CapacityLimiter(_LARGE_DECODERS)

    def routes(self) -> Iterator[Route]:
        """Yield the routes of an application."""
        yield Route(f"{PREFIX}/health/live", self._live)
        for path in _paths(f"{_MODEL}/infer"):
            yield Route(path, _Exchange("POST", self._infer, self._memory, self._limit))
        for endpoint in ENDPOINTS:
            exchange = _Exchange(endpoint.http_method, partial(self._handle, endpoint), self._memory, self._limit)
            for path in _paths(endpoint.path):
                yield Route(path, exchange)
        yield Route(f"{PREFIX}/{{path:path}}", self._unknown, methods=["GET", "POST"])

    async def _unknown(self, request: Request) -> Response:
        raise HTTPException(404, f"there is no {request.url.path}")

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _handle(self, endpoint: Endpoint, request: Request, body: bytes) -> Response:
        body = decompress(body, request.headers.get("content-encoding", ""), _MAX_FIELDS_BYTES)
        message = endpoint.request(read_object(body) | request.path_params)
        encoded = await self._call(request, endpoint.method, message)
        response = getattr(messages, f"{endpoint.method}Response").FromString(encoded)
        is_ready = getattr(response, "ready", True)
        return JSONResponse(endpoint.convert(response), 200 if is_ready else 503)

    async def _infer(self, request: Request, body: bytes) -> Response:
        headers, names = request.headers, request.path_params
        length = headers.get(_HEADER_LENGTH)
        if length is not None and not (length.isdecimal() and len(length) <= _LENGTH_DIGITS):
            raise invalid_argument(f"the header {_HEADER_LENGTH} is {length!r:.100}; expected a number")

        def decode() -> tuple[JsonRequest, bytes]:
            whole = decompress(body, headers.get("content-encoding", ""), self._limit)
            read = read_infer_request(names["name"], names.get("version", ""), whole, int(length) if length else None)
            return read, read.message.SerializeToString()

        read, encoded = await to_thread.run_sync(decode, limiter=self._limiter(len(body), headers))
        response = await self._call(request, "ModelInfer", encoded, is_bound=read.is_bound)

        def encode() -> Response:
            content, size = write_infer_response(messages.ModelInferResponse.FromString(response), read)
            content, more = compress(content, headers.get("accept-encoding", ""))
            if size is not None:
                more[_HEADER_LENGTH] = str(size)
            return Response(
                content, headers=more, media_type="application/octet-stream" if size else "application/json"
            )

        return await to_thread.run_sync(encode, limiter=self._limiter(len(response)))

    def _limiter(self, size: int, headers: Mapping[str, str] = _NO_HEADERS) -> CapacityLimiter:
        is_large = size > _LARGE_BYTES or "content-encoding" in headers
        return self._large_decoders if is_large else self._decoders

    async def _call(self, request: Request, method: str, message: Message | bytes, *, is_bound: bool = True) -> bytes:
        """Call a worker for the caller of a request."""
        identify = partial(self._identify, http_caller(request), with_user=method == _NEEDS_USER)
        caller = await to_thread.run_sync(identify, limiter=self._callers)  # keys of tokens may come from a URL
        encoded = message if isinstance(message, bytes) else message.SerializeToString()
        return await self._calls.call(Call(method, encoded, caller, is_bound))


class _Exchange:
    """ASGI application: the way from a request to the end of its response, with the memory that these take."""

    def __init__(self, method: str, handle: Handler, memory: BodyMemory, limit: int) -> None:
        self._methods = ("GET", "HEAD") if method == "GET" else (method,)
        self._handle = handle
        self._memory = memory
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        with ExitStack() as memory:
            try:
                response = await self._respond(request, memory)
            except ClientDisconnect:
                return
            except (HTTPException, grpc.RpcError, HalError, AdminError) as error:
                response = _error_response(error)
            async with asyncio.timeout(_SEND_S):
                await response(scope, receive, send)

    async def _respond(self, request: Request, memory: ExitStack) -> Response:
        if request.method not in self._methods:  # a route would leave GET to `_unknown`
            allowed = ", ".join(self._methods)
            raise HTTPException(405, f"method {request.method} is not allowed; expected {allowed}", {"allow": allowed})
        memory.enter_context(self._memory.reserve(expected_size(request, self._limit)))
        work = asyncio.ensure_future(self._handle(request, await read_body(request, self._limit)))
        gone = asyncio.ensure_future(request.receive())  # after the body, only the end of the connection comes
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return Response(status_code=499)
            response = await work
        finally:
            work.cancel()
            gone.cancel()
        memory.enter_context(self._memory.reserve(len(response.body)))
        return response


def _error_response(error: Exception) -> Response:
    """Return a response in the form that clients of the protocol expect."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    if isinstance(error, HalError):
        code, text = status_of(error)
    elif isinstance(error, grpc.RpcError):
        code, text = error.code(), error.details() or ""
    else:
        code, text = grpc.StatusCode.UNAVAILABLE, str(error)
    return JSONResponse({"error": text}, _STATUSES.get(code, 500))
