"""Executions when a process ends (RESIL-04 to -08) or stops (RESIL-20), and sessions of other processes (RESIL-19)."""

import queue
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nnhal.types import AnyArray
from nnhal.v1 import burst_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Skipped
from nnhal_tools.conformance.device.calls import WATCHDOG_S
from nnhal_tools.conformance.device.control import STOP
from nnhal_tools.conformance.device.options import DEFAULT_RUN, RunOptions
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS
from nnhal_tools.conformance.paths.burst import (
    NO_IDENTIFIER,
    execute_burst,
    execute_message,
    open_burst,
    stream_outcome,
)
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.resilience.models import (
    AddChain,
    endless_loop,
    random_values,
    require_alive,
    require_model,
)
from nnhal_tools.conformance.resilience.outage import OTHERS, outage, require_data_socket
from nnhal_tools.conformance.resilience.session import SessionAtWork, Step, Work

LOOP_TIMEOUT_NS = 15_000_000_000
"""The longest loop timeout."""

IN_FLIGHT = 4
"""Number of requests on the stream of a burst that are not answered yet."""

MANY, ROUNDS = 12, 3
"""Number of sessions among which there are some of each of two processes, most likely, and of kills to find them."""


def executing(path: str, id_: str) -> Work:
    """Return the work of executing a model on a path, again and again."""

    @contextmanager
    def work(session: SessionAtWork) -> Iterator[Step]:
        chain = AddChain.random()
        model = chain.prepared(session.target)

        def step() -> None:
            values = random_values()
            execution = CALLS[path](session.target, model, chain.request(values), DEFAULT_RUN)
            chain.expect_correct(id_, path, values, execution)

        yield step

    return work


def executing_endlessly(path: str, id_: str, timeout_ns: int = LOOP_TIMEOUT_NS) -> Work:
    """Return the work of executing a loop once, which only its timeout ends."""

    @contextmanager
    def work(session: SessionAtWork) -> Iterator[Step]:
        endless, request = endless_loop()
        model = require_model(session.target.prepare(endless))
        session.is_endless = True

        def step() -> None:
            session.at_work.set()
            run = RunOptions(loop_timeout_ns=timeout_ns)
            outcome = require_alive(CALLS[path](session.target, model, request, run).outcome)
            if not outcome.is_missed_deadline:
                raise CheckFailed(id_, f"{path}, an endless loop", "MISSED_DEADLINE_*, or UNAVAILABLE", outcome)
            session.await_end()

        yield step

    return work


_NO_WORKS: Mapping[str, Work] = {}


def _interrupt(
    target: Target,
    recorder: CheckRecorder,
    id_: str,
    paths: Sequence[str],
    more: Mapping[str, Work] = _NO_WORKS,
) -> None:
    """Kill a process while each path is in use. An endless loop is in progress on the first one.

    Then the service that is back must execute a model correctly on each path.
    """
    works = {path: executing(path, id_) for path in paths} | dict(more)
    works[f"{paths[0]}, an endless loop"] = executing_endlessly(paths[0], id_)
    with outage(target, recorder, id_, works) as service:
        chain = AddChain.random()
        model = chain.prepared(service.fresh)
        for path in paths:
            values = random_values()
            execution = CALLS[path](service.fresh, model, chain.request(values), DEFAULT_RUN)
            chain.expect_correct(id_, f"{path} after the end of a process", values, execution)


@check("RESIL-04", exclusive=True)
def synchronous(target: Target, recorder: CheckRecorder) -> None:
    """Kill during executeSynchronously: the call ends, and no output is wrong."""
    _interrupt(target, recorder, "RESIL-04", ("SYNC", "SYNC-C"))


@check("RESIL-05", exclusive=True)
def reusable(target: Target, recorder: CheckRecorder) -> None:
    """Kill during runs of a reusable execution, synchronous and fenced: the call ends, and no output is wrong."""
    _interrupt(target, recorder, "RESIL-05", ("SYNC-R", "FENCED-R"))


@check("RESIL-06", exclusive=True)
def fenced(target: Target, recorder: CheckRecorder) -> None:
    """Kill during fenced executions: the launch, or the wait for its fence, ends, and no output is wrong."""
    _interrupt(target, recorder, "RESIL-06", ("FENCED", "FENCED-C"))


@check("RESIL-07", exclusive=True)
def bursts(target: Target, recorder: CheckRecorder) -> None:
    """Kill during executions of a burst, call by call and over a stream: the call ends, and no output is wrong."""
    paths = ("BURST", "BURST-C", "BURST-STREAM", "BURST-C-STREAM")
    _interrupt(target, recorder, "RESIL-07", paths, {"one burst": _bursting})


@contextmanager
def _bursting(session: SessionAtWork) -> Iterator[Step]:
    """Execute on the same burst again and again. The outputs are in the answers."""
    chain, target = AddChain.random(), session.target
    with open_burst(target, chain.prepared(target)) as (outcome, burst):
        require_alive(outcome)

        def step() -> None:
            values = random_values()
            request = chain.request(values)
            message = execute_message(target, burst, request, [NO_IDENTIFIER] * len(request.pools), DEFAULT_RUN)
            chain.expect_correct("RESIL-07", "one burst", values, execute_burst(target, message))

        yield step


@check("RESIL-09", "executions", exclusive=True)
def data_socket(target: Target, recorder: CheckRecorder) -> None:
    """Kill during executions over the data socket: the connection ends, and no output is wrong."""
    require_data_socket(target)
    paths = [code for code, path in CALLS.items() if path.over_data_socket]
    _interrupt(target, recorder, "RESIL-09", paths)


# ---- Stream of a burst ------------------------------------------------------------------------------------


@check("RESIL-08", exclusive=True)
def open_stream(target: Target, recorder: CheckRecorder) -> None:
    """Kill with a stream of a burst open, on which requests are in flight.

    The answers before the end must be right and in the order of the requests. The stream must end with an error.
    """
    works = {f"stream {number}": _streaming for number in (1, 2)}
    with outage(target, recorder, "RESIL-08", works):
        pass


@contextmanager
def _streaming(session: SessionAtWork) -> Iterator[Step]:
    chain = AddChain.random()
    target = session.target
    with open_burst(target, chain.prepared(target)) as (outcome, burst):
        require_alive(outcome)
        pending: queue.SimpleQueue[burst_pb2.BurstStreamRequest | None] = queue.SimpleQueue()
        responses = target.rpc("Burst.Stream")(iter(pending.get, None), timeout=WATCHDOG_S)
        sent: list[AnyArray] = []

        def step() -> None:
            while len(sent) < IN_FLIGHT:
                sent.append(random_values())
                request = chain.request(sent[-1])
                message = execute_message(target, burst, request, [NO_IDENTIFIER] * len(request.pools), DEFAULT_RUN)
                pending.put(burst_pb2.BurstStreamRequest(execute=message))
            response = next(responses, None)
            if response is None:
                raise CheckFailed("RESIL-08", "Burst.Stream", "an answer, or UNAVAILABLE", "the end of the stream")
            chain.expect_correct("RESIL-08", "Burst.Stream", sent.pop(0), stream_outcome(target, response))

        try:
            yield step
        finally:
            pending.put(None)
            responses.cancel()


# ---- Other processes --------------------------------------------------------------------------------------


@check(OTHERS, exclusive=True)
def _other_processes(target: Target, recorder: CheckRecorder) -> None:
    works = {f"session {number}": executing("SYNC", "RESIL-04") for number in range(1, MANY + 1)}
    for _ in range(ROUNDS):
        with outage(target, recorder, "RESIL-04", works) as service:
            for session in service.others:
                _expect_alive(recorder, session.target)
            if service.others:
                return
    raise Skipped("", f"the process that ended served all {MANY} sessions, {ROUNDS} times")


def _expect_alive(recorder: CheckRecorder, session: Target) -> None:
    """Check that a session prepares and executes a model."""
    chain, values = AddChain.random(), random_values()
    execution = session.execute(chain.prepared(session), chain.request(values))
    stimulus = "a session of another process"
    recorder.expect_status(execution.outcome, stimulus)
    chain.expect_correct(OTHERS, stimulus, values, execution)


# ---- Processes that are asked to stop -----------------------------------------------------------------------

ENDS = "RESIL-20"
SECONDS_NS = 2_000_000_000

PATHS = ("SYNC", "BURST", "BURST-STREAM", "FENCED")


@check(ENDS, exclusive=True)
def orderly_stop(target: Target, recorder: CheckRecorder) -> None:
    """Ask a process to stop during executions: they end as if it was killed, and its sessions are told why they end.

    A loop of some seconds has its grace time. gRPC may cancel calls that come while the process stops.
    """
    works = {"SYNC, an endless loop": executing_endlessly("SYNC", ENDS, SECONDS_NS)}
    works |= {path: executing(path, ENDS) for path in PATHS}
    with outage(target, recorder, ENDS, works, STOP) as service:
        for session in service.ended:
            reason = session.closing.reason if session.closing else ""
            recorder.expect(bool(reason), f"the last event of the session of {session.name}", "a reason", reason)
