"""gRPC server on loopback that opens sessions, or redirects them to another address."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import grpc

from nnhal.errors import DETAILS_KEY
from nnhal.v1 import enums_pb2, error_pb2, session_pb2, session_pb2_grpc


class RedirectingServer(session_pb2_grpc.SessionServicer):
    """Service without devices.

    Attributes:
        target: its address.
        requests: the requests to open a session.
        headers: the header `authorization` of each request, or "".
        redirect: address for sessions that accept a redirect; "" opens them.
        always: whether it redirects sessions that do not accept it, which is wrong.
        other_service: whether it says that the address is that of another service of a fleet.
        reason: why it redirects.
        refuses: whether it refuses the sessions that do not accept its redirect, as services with a worker for each
            client do.
        members: addresses of other services that it names when it opens a session.
        member: its id in a fleet; "" ends the stream of a session at once.
        streams: what the streams of its sessions send next, if it has an id.
    """

    def __init__(self, redirect: str = "", *, always: bool = False) -> None:
        self.target = ""
        self.requests: list[session_pb2.OpenRequest] = []
        self.headers: list[str] = []
        self.redirect = redirect
        self.always = always
        self.other_service = False
        self.reason = ""
        self.refuses = False
        self.members: list[str] = []
        self.member = ""
        self.streams: list[SimpleQueue[session_pb2.SessionEvent | None]] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        session_pb2_grpc.add_SessionServicer_to_server(self, self._server)

    def Open(
        self, request: session_pb2.OpenRequest, context: grpc.ServicerContext
    ) -> Iterator[session_pb2.SessionEvent]:
        self.requests.append(request)
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        self.headers.append(metadata.get("authorization", ""))
        if self.redirect and (self.always or request.accept_redirect):
            redirect = session_pb2.SessionRedirect(
                address=self.redirect, other_service=self.other_service, reason=self.reason
            )
            yield session_pb2.SessionEvent(redirect=redirect)
        elif self.redirect and self.refuses:
            self._refuse(context)
        else:
            opened = session_pb2.SessionOpened(session=self.target.encode(), members=self.members, member=self.member)
            yield session_pb2.SessionEvent(opened=opened)
            if self.member:
                yield from self._later_events(context)

    def _refuse(self, context: grpc.ServicerContext) -> None:
        status = error_pb2.RpcStatus()
        status.details.add().Pack(
            error_pb2.ErrorDetail(
                status=enums_pb2.ERROR_STATUS_RESOURCE_EXHAUSTED_TRANSIENT, reason="no worker here", limit="workers"
            )
        )
        context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no worker here")

    def _later_events(self, context: grpc.ServicerContext) -> Iterator[session_pb2.SessionEvent]:
        events: SimpleQueue[session_pb2.SessionEvent | None] = SimpleQueue()
        if context.add_callback(lambda: events.put(None)):
            self.streams.append(events)
            while (event := events.get()) is not None:
                yield event

    def tell(self, *members: str) -> None:
        """Send the addresses of other services to the clients with a session."""
        for stream in self.streams:
            stream.put(session_pb2.SessionEvent(members=session_pb2.SessionMembers(members=members)))

    def start(self, credentials: grpc.ServerCredentials | None) -> None:
        """Start to listen."""
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """End all calls, and wait until nothing listens any more."""
        self._server.stop(0).wait()

    def Release(
        self, request: session_pb2.ReleaseRequest, context: grpc.ServicerContext
    ) -> session_pb2.ReleaseResponse:
        return session_pb2.ReleaseResponse()

    def Close(self, request: session_pb2.CloseRequest, context: grpc.ServicerContext) -> session_pb2.CloseResponse:
        return session_pb2.CloseResponse()


@contextmanager
def redirecting(
    redirect: str = "", *, always: bool = False, credentials: grpc.ServerCredentials | None = None
) -> Iterator[RedirectingServer]:
    """Run a server, with TLS if it has credentials. The other arguments are the attributes of `RedirectingServer`."""
    servicer = RedirectingServer(redirect, always=always)
    servicer.start(credentials)
    yield servicer
    servicer.stop()
