"""Session: open and close sessions, and release objects. The keep-alive stream occupies no thread."""

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial

import grpc

from nnhal.v1 import session_pb2, session_pb2_grpc
from nnhal.version import __version__
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.response_stream import QueuedSend, ResponseStream, Send
from nnhal_service.identity.identity import client_digest
from nnhal_service.peers.fleet.member_news import MemberNews, Tell
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.serving.hosting import Redirector
from nnhal_service.sessions.session import Session

CLIENT_NAME_LENGTH = 64
"""Number of characters of a client's name that are logged."""
_PLACEMENT_LENGTH = 256


class SessionServicer(ServicerBase, session_pb2_grpc.SessionServicer):
    """Servicer of Session.

    Args:
        executor: sends the last messages of streams.
        redirect: decides where new clients go; None: they are served here.
        news: tells clients of other services; None: there are none.
    """

    def __init__(
        self,
        parts: ServiceParts,
        executor: Executor,
        data_socket: str,
        redirect: Redirector | None,
        news: MemberNews | None,
    ) -> None:
        super().__init__(parts)
        self._executor = executor
        self._data_socket = data_socket
        self._redirect = redirect
        self._news = news

    @handler(non_blocking=True)
    def Open(
        self, request: session_pb2.OpenRequest, context: grpc.ServicerContext, send: Send[session_pb2.SessionEvent]
    ) -> None:
        """Open a session, or attach to an open one. The stream stays open until one side ends it."""
        credential, _ = self._sessions.authentication.admit(context)
        if request.accept_redirect and self._redirect is not None:
            redirect = self._redirect.choose(
                request,
                context.peer().partition(":")[0],
                self._sessions.count(),
                client_digest(credential.identity, context.peer()),
            )
            if redirect is not None:
                away: ResponseStream[session_pb2.SessionEvent] = ResponseStream(context, send)
                away.send(session_pb2.SessionEvent(redirect=redirect))
                away.end()
                return
        if request.session:
            session = self._sessions.attach(request.session, context)
        else:
            session = self._sessions.open(credential.identity, credential, context.peer(), request.replaces)
            self._calls.count_session(session)
            session.client = request.client_name[:CLIENT_NAME_LENGTH]
            session.placement = request.placement[:_PLACEMENT_LENGTH]
            session.log_opened()
        stream: ResponseStream[session_pb2.SessionEvent] = ResponseStream(context, send)
        peer, finish = context.peer(), partial(self._finish, stream)
        tell = _member_sender(stream, self._executor)
        opened = self._opened(session, resumed=bool(request.session))
        news = self._news if request.watch_members and opened.member else None

        def detach() -> None:
            session.off_drain(finish)
            if news is not None:
                news.remove(tell)
            self._sessions.forget_connection(session, peer)
            self._sessions.detach(session)

        if not context.add_callback(detach):
            detach()
            return
        stream.send(session_pb2.SessionEvent(opened=opened))
        session.on_drain(finish)
        if news is not None:
            news.add(tell, tuple(opened.members))
        if not stream.active:  # it may have ended before there was a listener to remove
            session.off_drain(finish)
            if news is not None:
                news.remove(tell)

    def _finish(self, stream: ResponseStream[session_pb2.SessionEvent], reason: str) -> None:
        """End the stream on another thread: a send may block on the client."""

        def work() -> None:
            stream.send(session_pb2.SessionEvent(closing=session_pb2.SessionClosing(reason=reason)))
            stream.end()

        self._executor.submit(work)

    def _opened(self, session: Session, *, resumed: bool) -> session_pb2.SessionOpened:
        return session_pb2.SessionOpened(
            session=session.token,
            grace_ns=int(self._sessions.grace_s * 1e9),
            service_version=__version__,
            limits={**self._limits, **session.account.limits()},
            data_socket=self._data_socket,
            data_secret=b"" if resumed else session.secret,  # who has only the token must not learn it
            members=self._redirect.members() if self._redirect is not None else (),
            member=self._redirect.member if self._redirect is not None else "",
        )

    @handler()
    def Close(self, request: session_pb2.CloseRequest, context: grpc.ServicerContext) -> session_pb2.CloseResponse:
        """End a session at once."""
        self._sessions.end(self._sessions.get(request.session, context), "closed by the client")
        return session_pb2.CloseResponse()

    @handler()
    def Release(
        self, request: session_pb2.ReleaseRequest, context: grpc.ServicerContext
    ) -> session_pb2.ReleaseResponse:
        """Release objects. Unknown handles are ignored."""
        self._sessions.get(request.session, context).release(request.handles)
        return session_pb2.ReleaseResponse()


def _member_sender(stream: ResponseStream[session_pb2.SessionEvent], executor: Executor) -> Tell:
    """Return a function that sends the addresses of other services to a client, on another thread."""

    def deliver(members: Sequence[str] | None) -> None:
        stream.send(session_pb2.SessionEvent(members=session_pb2.SessionMembers(members=members)))

    return QueuedSend(deliver, executor)
