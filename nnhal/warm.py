"""Preparing from the cache first, and again when the service was started anew: the synchronous side of `nnhal.caching`.

A device has one connection at a time. Whoever finds its session lost asks the `Lifeline` for the next one: the first
opens it, the others wait for that, and each model is then prepared again once.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

import grpc

from nnhal import pools, wire
from nnhal.caching import Recipe, Until, compiled, is_lost, must_compile
from nnhal.connection import Connection, closed_here, unanswered
from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError, HalError
from nnhal.failures import hal_error
from nnhal.local import Transport
from nnhal.owned import C
from nnhal.prepared import never_notified
from nnhal.types import Model
from nnhal.v1 import device_pb2, types_pb2

REPEATS = 3
"""How often an execution is repeated when its service is lost."""
ATTEMPT_S = 2.0
"""Seconds that one attempt to reach a service may take; a `close` meanwhile waits for it."""
PAUSE_S = 0.05
"""Seconds between attempts."""

if TYPE_CHECKING:
    Stream: TypeAlias = "grpc._CallIterator[device_pb2.PrepareModelEvent]"


@contextmanager
def model_message(connection: Connection, model: Model) -> Generator[types_pb2.Model, None, None]:
    """Surrounds a call: gives a model's message. What is too large for it is uploaded, and let go afterwards."""
    model = pools.with_small_values(model)
    taken = memoryview(model.operand_values).nbytes
    with connection.spilled(model.pools, lasting=True, taken=taken) as send:
        yield wire.model_message(model, send)


class Calls:
    """The calls of one preparation, one after the other. `cancel` ends the one on its way, and those to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._cancelled = False

    def start(
        self,
        connection: Connection,
        method: "grpc.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
        request: object,
    ) -> "Stream":
        """Starts a call that prepares.

        Raises:
            HalError: the connection has been closed.
        """
        try:
            stream = connection.start(method, request)
        except grpc.RpcError as error:
            raise hal_error(error) from error
        with self._lock:
            self._stream = stream
            if self._cancelled:
                stream.cancel()
        return stream

    def cancel(self) -> None:
        """Abandons the work on the service."""
        with self._lock:
            self._cancelled = True
            if self._stream is not None:
                self._stream.cancel()


def read_notify(stream: "Stream") -> device_pb2.Notify:
    """What a preparation's callback was told.

    Raises:
        HalError: nothing; the call failed before.
    """
    try:
        for event in stream:
            if event.WhichOneof("event") == "notify":
                # all that comes now is the end, for which nobody waits; a stream that nobody holds would be cancelled
                cast("grpc.Future[Any]", stream).add_done_callback(_ended)
                return event.notify
    except grpc.RpcError as error:
        raise hal_error(error) from error
    raise never_notified()


def _ended(stream: "grpc.Future[Any]") -> None:
    """Is told that a preparation's stream has ended; until then, whoever tells holds the stream."""


def prepare(connection: Connection, recipe: Recipe, calls: Calls, until: Until, *, again: bool) -> device_pb2.Notify:
    """Prepares from the cache, without sending the model; where that fails, from the model, and saves it.

    Args:
        again: the model may have changed since its recipe was written.

    Raises:
        HalError: a call failed. A preparation that fails otherwise says so in its notify.
    """
    token = recipe.token or recipe.token_on(device_version(connection, recipe.device))
    request = recipe.from_cache(connection.session, token, until)
    loaded = read_notify(calls.start(connection, connection.device.PrepareModelFromCache, request))
    if not must_compile(loaded):
        return loaded
    if again:
        recipe.check_unchanged()
    with model_message(connection, recipe.model) as message:
        full = recipe.compiling(connection.session, token, message, until)
        return compiled(read_notify(calls.start(connection, connection.device.PrepareModel, full)), loaded)


def device_version(connection: Connection, device: str) -> str:
    """Version of driver and backends; asked for once a connection."""
    if connection.version is None:
        request = device_pb2.DeviceRequest(device=device)
        connection.version = connection.ask(connection.device.GetVersionString, request).version
    return connection.version


class LifelineBase(Generic[C]):
    """The connection of a device, and the one after it. Close it when done.

    Args:
        target: None: a service of its own, which is started, and started anew when it has died.
        timeout: seconds to wait for the service.
    """

    connection: C

    def __init__(self, target: str | None, timeout: float, transport: Transport) -> None:
        self._target = target
        self._timeout = timeout
        self._transport = transport
        self._service: EmbeddedService | None = None
        self._closed = False

    def repeats(self, error: HalError, connection: C, repeats: int) -> bool:
        """Whether an execution that failed is made once more, on the next connection. `repeats`: those there were."""
        # what is on its way when somebody else closes a lost connection is cancelled
        return repeats < REPEATS and (is_lost(error) or self.connection is not connection)

    def _unanswered(self) -> DeadObjectError:
        return unanswered(self._target or "the embedded service", self._timeout)

    @property
    def _may_answer(self) -> bool:
        return self._service is None or self._service.running


class Lifeline(LifelineBase[Connection]):
    """See LifelineBase. Thread safe.

    Raises:
        DeadObjectError: the service does not answer, or does not start.
    """

    def __init__(self, target: str | None, timeout: float, transport: Transport) -> None:
        super().__init__(target, timeout, transport)
        self._renewing = threading.Lock()
        try:
            self.connection = self._open(timeout)
        except BaseException:
            self._close_service()
            raise

    def renewed(self, lost: Connection, until: Until) -> Connection:
        """The connection to go on with after an error of `lost`: the same where its session goes on.

        Raises:
            DeadObjectError: the service does not come back in time.
            SessionLostError: the device has been closed.
        """
        end = Until(until.at_most(self._timeout))
        if not self._renewing.acquire(timeout=end.at_most(self._timeout)):
            raise self._unanswered()
        try:
            while self.connection is lost and not self._try(lost, end):
                time.sleep(PAUSE_S)
            return self.connection
        finally:
            self._renewing.release()

    def _try(self, lost: Connection, end: Until) -> bool:
        """One attempt; False: not yet.

        Raises:
            HalError: there is no time for another, or no use.
        """
        if self._closed:
            raise closed_here()
        seconds = end.at_most(ATTEMPT_S)
        try:
            if self._may_answer and lost.alive(seconds):
                return True
            self.connection = self._open(seconds)
        except DeadObjectError:
            if end.left == 0 and not self._closed:
                raise
            return False
        lost.close()
        return True

    def _open(self, timeout: float) -> Connection:
        target = self._target
        if target is None:
            if self._service is None or not self._service.running:
                self._close_service()
                self._service = EmbeddedService()
                timeout = self._timeout
            target = self._service.target
        return Connection(target, timeout, self._transport)

    def close(self) -> None:
        """Ends the session, and the service if it is the device's own. A second call does nothing."""
        self._closed = True
        try:
            self.connection.close()
            with self._renewing:  # it may have opened another one meanwhile
                self.connection.close()
        finally:
            self._close_service()

    def _close_service(self) -> None:
        if self._service is not None:
            self._service.close()
