"""Client of a simulated fleet: it finds services as the clients of the product do, and executes a model repeatedly."""

from collections.abc import Callable, Mapping
from random import Random

from nnhal.client.core.reconnect import ATTEMPT_TIMEOUT_S, REDIRECT_TIMEOUT_S, RETRY_DELAY_S, AddressBook, Hop
from nnhal.v1.session_pb2 import OpenRequest, SessionNeeds
from tests.benchmark.simulation.event_loop import EventLoop
from tests.benchmark.simulation.host import SimulatedHost
from tests.benchmark.simulation.times import COMPILE_S, EXECUTE_S, LOAD_S, NETWORK_S, OPEN_S


class ClientWorld:
    """Everything that clients share.

    Args:
        loop: the simulation.
        hosts: the hosts, by address.
        think_s: mean time between the answer of an execution and the next one; 0: clients execute nothing.
        random: chooses times.
        note_answer: called with the latency of each execution.
        note_return: called with the time from the loss of a session to the next answer.
    """

    def __init__(
        self,
        loop: EventLoop,
        hosts: Mapping[str, SimulatedHost],
        think_s: float,
        random: Random,
        note_answer: Callable[[float], None],
        note_return: Callable[[float], None],
    ) -> None:
        self.loop = loop
        self.hosts = hosts
        self.think_s = think_s
        self.random = random
        self.note_answer = note_answer
        self.note_return = note_return
        self.redirects = self.failed_attempts = self.opened = self.started = self.answered = 0


class SimulatedClient:
    """A client with one session.

    Args:
        world: shared with all clients.
        address: the address that it is given.
        model: digest of its model, in hexadecimal.
    """

    __slots__ = (
        "_book",
        "_candidates",
        "_generation",
        "_lost_at",
        "_model",
        "_started_at",
        "_world",
        "host",
        "is_gone",
    )

    def __init__(self, world: ClientWorld, address: str, model: str) -> None:
        self._world = world
        self._book = AddressBook(address)
        self._candidates: list[str] = []
        self._model = model
        self._started_at = -1.0
        self._lost_at = -1.0
        self._generation = 0
        self.host: SimulatedHost | None = None
        self.is_gone = False

    def _request(self, hop: Hop) -> OpenRequest:
        needs = SessionNeeds(models=[bytes.fromhex(self._model)])
        return OpenRequest(accept_redirect=hop is not Hop.LAST, placed=hop is Hop.PLACED, needs=needs)

    # ---- Finding a service ------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a session at one of the addresses that the client knows."""
        if self.is_gone:
            return
        self.host = None
        self._candidates = self._book.candidates()
        self._try_next()

    def _try_next(self) -> None:
        world = self._world
        if not self._candidates:
            world.loop.call_at(world.loop.now + RETRY_DELAY_S, self.connect)
            return
        address = self._candidates[0]
        host = world.hosts.get(address)
        if host is not None and host.is_alive:
            host.submit(OPEN_S, self._answered, self._attempt_failed, host, Hop.FIRST)
            return
        timeout = ATTEMPT_TIMEOUT_S if host is None or host.is_silent else NETWORK_S
        world.loop.call_at(world.loop.now + timeout, self._attempt_failed, host, Hop.FIRST)

    def _attempt_failed(self, host: SimulatedHost | None, hop: Hop) -> None:
        self._world.failed_attempts += 1
        address = self._candidates.pop(0)
        self._book.note_failure(address)
        self._try_next()

    def _answered(self, host: SimulatedHost, hop: Hop) -> None:
        """Handle the answer of a host: a session, or the address of another one."""
        found = host.directory.choose(self._request(hop), host.sessions, is_local=False) if hop is Hop.FIRST else None
        if found is None or found.member is None:
            self._open(host)
            return
        world = self._world
        world.redirects += 1
        other = world.hosts[found.member.address]
        if other.is_alive:
            other.submit(OPEN_S, self._placed, self._not_placed, other, host)
        else:
            timeout = REDIRECT_TIMEOUT_S if other.is_silent else NETWORK_S
            world.loop.call_at(world.loop.now + timeout, self._not_placed, other, host)

    def _placed(self, host: SimulatedHost, sent_by: SimulatedHost) -> None:
        self._open(host)

    def _not_placed(self, host: SimulatedHost, sent_by: SimulatedHost) -> None:
        """Stay at the service that has sent the client to a dead one."""
        self._world.failed_attempts += 1
        sent_by.submit(OPEN_S, self._open, self._lose, sent_by)

    def _open(self, host: SimulatedHost) -> None:
        if self.is_gone:
            return
        self.host, self._generation = host, host.generation
        host.sessions += 1
        world = self._world
        world.opened += 1
        self._book.note_session(host.record.address, host.directory.others())
        seconds = LOAD_S if self._model in host.models else COMPILE_S
        host.models.add(self._model)
        host.submit(seconds, self._prepared, self._lose, host)

    # ---- Executing --------------------------------------------------------------------------------------

    def _prepared(self, host: SimulatedHost) -> None:
        world = self._world
        if self._started_at >= 0:
            host.submit(EXECUTE_S, self._executed, self._lose, host)
        elif world.think_s:
            self._think()

    def _think(self) -> None:
        world = self._world
        world.loop.call_at(world.loop.now + world.random.expovariate(1 / world.think_s), self.execute)

    def execute(self) -> None:
        """Begin an execution. If its service drains, the client leaves it first."""
        host = self.host
        if self.is_gone or host is None:
            return
        self._started_at = self._world.loop.now
        self._world.started += 1
        if host.is_draining and self.has_session:
            host.sessions -= 1
            self._lost_at = self._started_at
            self.connect()
        elif host.is_alive and host.generation != self._generation:  # it has been replaced
            self._lose(host)
        else:
            host.submit(EXECUTE_S, self._executed, self._lose, host)

    def _executed(self, host: SimulatedHost) -> None:
        world = self._world
        world.answered += 1
        if self._lost_at >= 0:
            world.note_return(world.loop.now - self._lost_at)
            self._lost_at = -1.0
        world.note_answer(world.loop.now - self._started_at)
        self._started_at = -1.0
        self._think()

    def _lose(self, host: SimulatedHost) -> None:
        """Go on elsewhere. The time counts from the death of the host, or from the call after it."""
        if self._lost_at < 0:
            self._lost_at = max(host.died_at, self._started_at)
        self._book.note_failure(host.record.address)
        self.connect()

    @property
    def has_session(self) -> bool:
        """True if the client has a session that exists."""
        return self.host is not None and self.host.is_alive and self.host.generation == self._generation

    def leave(self) -> None:
        """End the session."""
        self.is_gone = True
        if self.host is not None and self.has_session:
            self.host.sessions -= 1
        self.host = None
