"""Faults of the data socket."""

from nnhal import frames
from nnhal.frames import Frame, Kind, Place
from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2
from tools.conformance.selftest.fault import data_fault
from tools.conformance.selftest.relay import Exchange


@data_fault("GEN-19", paths=("SYNC-LOCAL",))
def defined_request_runs_once(exchange: Exchange, request: Frame) -> Frame | None:
    """The second run of a request does nothing and answers what the first did."""
    if request.kind != Kind.RUN:
        return exchange.forward(request)
    first: Frame | None = exchange.kept.get(request.number)
    if first is None:
        first = exchange.kept[request.number] = exchange.forward(request)
    return first


@data_fault("GEN-12", paths=("BURST-LOCAL",))
def every_run_is_measured(exchange: Exchange, request: Frame) -> Frame | None:
    """Timing comes although it was not asked for."""
    return exchange.forward(request._replace(flags=frames.MEASURE) if request.kind == Kind.RUN else request)


@data_fault("GEN-23", paths=("SYNC-LOCAL",))
def outputs_that_do_not_fit_are_not_told(exchange: Exchange, request: Frame) -> Frame | None:
    """Every RESULT says that the regions were large enough."""
    answer = exchange.forward(request)
    if answer is None or answer.kind != Kind.RESULT:
        return answer
    return answer._replace(flags=answer.flags | frames.SUFFICIENT)


@data_fault("GEN-18", "NNHAL-39", paths=("BURST-LOCAL",), select=("split_int32",))
def returned_outputs_at_the_wrong_place(exchange: Exchange, request: Frame) -> Frame | None:
    """Outputs in the area are all said to be at its beginning."""
    answer = exchange.forward(request)
    if answer is None or answer.kind != Kind.RESULT:
        return answer
    outputs = frames.unpack_outputs(answer.body, 3)
    moved = [output._replace(offset=0) if output.place == Place.AREA else output for output in outputs]
    return answer._replace(body=frames.pack_outputs(moved))


@data_fault("VALREQ-03", "VALREQ-05", "NNHAL-37", paths=("SYNC-LOCAL", "BURST-LOCAL"))
def refusals_as_general_failure(exchange: Exchange, request: Frame) -> Frame | None:
    """Every ERROR has the status GENERAL_FAILURE."""
    answer = exchange.forward(request)
    if answer is None or answer.kind != Kind.ERROR:
        return answer
    detail = error_pb2.ErrorDetail.FromString(answer.body)
    detail.status = ErrorStatus.GENERAL_FAILURE  # type: ignore[assignment]
    return answer._replace(body=detail.SerializeToString())


@data_fault("NNHAL-37", select=())
def wrong_definition_accepted(exchange: Exchange, request: Frame) -> Frame | None:
    """What is wrong with a request is told when it runs, not when it is defined."""
    return _done(exchange, request) if request.kind == Kind.DEFINE else exchange.forward(request)


@data_fault("NNHAL-35", select=())
def unsealed_memory_accepted(exchange: Exchange, request: Frame) -> Frame | None:
    """Any descriptor is taken as memory."""
    return _done(exchange, request) if request.kind == Kind.SHARE else exchange.forward(request)


def _done(exchange: Exchange, request: Frame) -> Frame | None:
    answer = exchange.forward(request)
    return answer and Frame(Kind.DONE, request.number)


@data_fault("NNHAL-34", select=())
def secret_unchecked(exchange: Exchange, request: Frame) -> Frame | None:
    """Whoever knows a session is let in."""
    if request.kind == Kind.HELLO:
        session, _ = frames.read_greeting(request.body)
        request = request._replace(body=frames.greeting(session, exchange.opened.data_secret))
    return exchange.forward(request)


@data_fault("NNHAL-36", select=())
def unknown_kinds_answered(exchange: Exchange, request: Frame) -> Frame | None:
    """A frame of an unknown kind is answered by DONE."""
    return exchange.forward(request) if request.kind in list(Kind) else Frame(Kind.DONE, request.number)


@data_fault("NNHAL-38", select=())
def memory_dropped_while_it_is_used(exchange: Exchange, request: Frame) -> Frame | None:
    """DROP forgets the requests as well."""
    if request.kind == Kind.DEFINE:
        exchange.kept[request.number] = True
    if request.kind == Kind.DROP:
        for number in exchange.kept:
            exchange.forward(Frame(Kind.FORGET, number))
    return exchange.forward(request)


@data_fault("NNHAL-40", select=())
def execution_goes_on_without_its_client(exchange: Exchange, request: Frame) -> Frame | None:
    """Nobody looks whether the client is there while its execution runs.

    The relay does not either, so this is all.
    """
    return exchange.forward(request)
