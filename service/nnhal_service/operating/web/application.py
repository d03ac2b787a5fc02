"""Application of the HTTP port: its routes, and who may use them."""

from collections.abc import Collection
from dataclasses import asdict

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.operating.web.access import (
    CallerRights,
    FindRights,
    UnauthenticatedError,
    http_caller,
    read_only_rights,
)
from nnhal_service.operating.web.api import MAX_BODY_BYTES, PREFIX, BadRequestError, JsonApi
from nnhal_service.operating.web.inference.endpoints import InferenceEndpoints
from nnhal_service.operating.web.observer import ServiceObserver
from nnhal_service.operating.web.protection import Protection
from nnhal_service.operating.web.static_files import load_static_files

_PAGE = "index.html"
_NO_STORE = {"cache-control": "no-store"}


class WebApplication:
    """Handles the requests for one service.

    Args:
        find_rights: decides who may do what.
        hosts: host names that clients may use, see `Protection`.
        inference: the endpoints for models by name; None without them.

    Attributes:
        observer: takes snapshots; start and stop it with the server.
        asgi: the application for a server.
    """

    def __init__(
        self,
        view: ServiceView,
        find_rights: FindRights = read_only_rights,
        hosts: Collection[str] | None = (),
        inference: InferenceEndpoints | None = None,
    ) -> None:
        self.observer = ServiceObserver(view)
        self._view = view
        self._find_rights = find_rights
        self._api = JsonApi(view, self.observer)
        self._files = load_static_files()
        application = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._readiness),
                Route("/metrics", self._metrics),
                Route(PREFIX, self._index),
                Route(f"{PREFIX}/caller", self._caller),
                Route(f"{PREFIX}/{{name}}", self._resource),
                Route(f"{PREFIX}/actions/{{name}}", self._action, methods=["POST"]),
                *(inference.routes() if inference is not None else ()),
                Route("/", self._file),
                Route("/{path:path}", self._file),
            ],
            exception_handlers=dict.fromkeys((HTTPException, AdminError, Exception), _error_response),
        )
        self.asgi = Protection(application, hosts)

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_NO_STORE)

    async def _readiness(self, request: Request) -> Response:
        reason = await to_thread.run_sync(self.observer.readiness)
        return PlainTextResponse(f"{reason or 'ready'}\n", 503 if reason else 200, _NO_STORE)

    async def _metrics(self, request: Request) -> Response:
        await self._require_observer(request)
        body, media_type = await to_thread.run_sync(self._view.metrics, request.headers.get("accept", ""))
        return Response(body, headers={**_NO_STORE, "content-type": media_type})

    async def _index(self, request: Request) -> Response:
        await self._require_observer(request)
        resources = [f"{PREFIX}/{name}" for name in ("caller", *self._api.resources)]
        actions = [f"{PREFIX}/actions/{name}" for name in self._api.actions]
        return _json({"resources": resources, "actions": actions})

    async def _caller(self, request: Request) -> Response:
        rights = await self._rights(request)
        return _json({**asdict(rights), "identity": str(rights.identity)})

    async def _resource(self, request: Request) -> Response:
        await self._require_observer(request)
        name = request.path_params["name"]
        if name not in self._api.resources:
            raise HTTPException(404, f"there is no resource {name!r}; expected one of {', '.join(self._api.resources)}")
        try:
            return await to_thread.run_sync(lambda: _json(self._api.read(name, request.query_params)))
        except BadRequestError as error:
            raise HTTPException(400, str(error)) from error

    async def _action(self, request: Request) -> Response:
        rights = await self._rights(request)
        if not rights.may_administer:
            raise HTTPException(403, f"{rights.identity} may not administer the service")
        name = request.path_params["name"]
        if name not in self._api.actions:
            raise HTTPException(404, f"there is no action {name!r}; expected one of {', '.join(self._api.actions)}")
        content = await _body(request)
        try:
            result = await to_thread.run_sync(self._api.act, name, str(rights.identity), content)
        except BadRequestError as error:
            raise HTTPException(400, str(error)) from error
        except AdminError as error:
            raise HTTPException(409, str(error)) from error
        return _json({"result": result})

    async def _file(self, request: Request) -> Response:
        file = self._files.get(request.path_params.get("path", "") or _PAGE)
        if file is None:
            raise HTTPException(404, f"there is no {request.url.path}")
        return file.response(request)

    async def _rights(self, request: Request) -> CallerRights:
        try:
            return await to_thread.run_sync(
                self._find_rights, http_caller(request)
            )  # keys of tokens may come from a URL
        except UnauthenticatedError as error:
            raise HTTPException(401, str(error), {"www-authenticate": "Bearer"}) from error

    async def _require_observer(self, request: Request) -> None:
        rights = await self._rights(request)
        if rights.may_observe:
            return
        if rights.identity.kind == "anonymous":
            raise HTTPException(401, "sign in to observe the service", {"www-authenticate": "Bearer"})
        raise HTTPException(403, f"{rights.identity} may not observe the service")


async def _body(request: Request) -> bytes:
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    return content


def _json(value: object, status: int = 200) -> Response:
    return JSONResponse(value, status, _NO_STORE)


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, {**_NO_STORE, **(error.headers or {})})
    # an unexpected error may have secrets; the server logs it
    text = str(error) if isinstance(error, AdminError) else "the service could not answer; its log says why"
    return _json({"error": text}, 503)
