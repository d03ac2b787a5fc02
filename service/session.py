"""Session: opening, closing, releasing. The keep-alive stream holds no thread."""

from concurrent.futures import Executor

import grpc

from nnhal.v1 import session_pb2, session_pb2_grpc
from service.limits import Limits
from service.log import event
from service.rpc import answering
from service.sessions import ANONYMOUS, Session, Sessions
from service.stream import ResponseStream, Send

SERVICE_VERSION = "0.1.0"

CLIENT_NAME_LENGTH = 64
"""What of a client's name is logged."""


class SessionServicer(session_pb2_grpc.SessionServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, executor: Executor, limits: Limits, data_socket: str = "") -> None:
        self._sessions = sessions
        self._executor = executor
        self._limits = limits
        self._data_socket = data_socket

    @answering
    def Open(  # type: ignore[override]
        self, request: session_pb2.OpenRequest, context: grpc.ServicerContext, send: Send[session_pb2.SessionEvent]
    ) -> None:
        """Opens a session, or takes one up again; the stream stays open until one side ends it."""
        if request.session:
            session = self._sessions.attach(request.session)
        else:
            session = self._sessions.open(ANONYMOUS)
            name = request.client_name[:CLIENT_NAME_LENGTH]
            event("session-opened", session=session.name, client=name, peer=context.peer())
        stream: ResponseStream[session_pb2.SessionEvent] = ResponseStream(context, send)

        def finish(why: str) -> None:
            self._finish(stream, why)

        def detach() -> None:
            session.forget(finish)
            self._sessions.detach(session)

        if not context.add_callback(detach):
            detach()
            return
        stream.send(session_pb2.SessionEvent(opened=self._opened(session)))
        session.when_ended(finish)
        if not stream.active:  # it went before there was anything to forget
            session.forget(finish)

    # grpc calls such a handler with a function that sends, and keeps no thread for the stream
    Open.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _finish(self, stream: ResponseStream[session_pb2.SessionEvent], why: str) -> None:
        """Ends the stream; sending waits for the client, so not on this thread."""

        def work() -> None:
            stream.send(session_pb2.SessionEvent(closing=session_pb2.SessionClosing(reason=why)))
            stream.end()

        self._executor.submit(work)

    def _opened(self, session: Session) -> session_pb2.SessionOpened:
        return session_pb2.SessionOpened(
            session=session.token,
            grace_ns=int(self._sessions.grace_s * 1e9),
            service_version=SERVICE_VERSION,
            limits=self._limits,
            data_socket=self._data_socket,
            data_secret=session.secret,
        )

    @answering
    def Close(self, request: session_pb2.CloseRequest, context: grpc.ServicerContext) -> session_pb2.CloseResponse:
        """Ends a session at once."""
        self._sessions.end(self._sessions.get(request.session), "closed by the client")
        return session_pb2.CloseResponse()

    @answering
    def Release(
        self, request: session_pb2.ReleaseRequest, context: grpc.ServicerContext
    ) -> session_pb2.ReleaseResponse:
        """Drops handles."""
        self._sessions.get(request.session).release(request.handles)
        return session_pb2.ReleaseResponse()
