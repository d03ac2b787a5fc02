"""Faults of the data socket."""

from nnhal.shm import protocol
from nnhal.shm.protocol import OutputLocation, Packet, PacketKind
from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2
from tests.tools.conformance.selftest.fault import data_fault
from tests.tools.conformance.selftest.relay import RelayedRequest


@data_fault("GEN-19", paths=("SYNC-LOCAL",))
def defined_request_runs_once(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Repeat the answer of the first run of a request instead of running it again."""
    if request.kind != PacketKind.RUN:
        return relayed.forward(request)
    first: Packet | None = relayed.state.get(request.number)
    if first is None:
        first = relayed.state[request.number] = relayed.forward(request)
    return first


@data_fault("GEN-12", paths=("BURST-LOCAL",))
def every_run_is_measured(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Return timing that was not requested."""
    return relayed.forward(request._replace(flags=protocol.MEASURE) if request.kind == PacketKind.RUN else request)


@data_fault("GEN-23", paths=("SYNC-LOCAL",))
def outputs_that_do_not_fit_are_not_told(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Report in every RESULT that the output regions were large enough."""
    answer = relayed.forward(request)
    if answer is None or answer.kind != PacketKind.RESULT:
        return answer
    return answer._replace(flags=answer.flags | protocol.SUFFICIENT)


@data_fault("GEN-18", "NNHAL-39", paths=("BURST-LOCAL",), select=("split_int32",))
def returned_outputs_at_the_wrong_place(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Report offset 0 for every output in the area."""
    answer = relayed.forward(request)
    if answer is None or answer.kind != PacketKind.RESULT:
        return answer
    outputs = protocol.unpack_outputs(answer.body, 3)
    moved = [output._replace(offset=0) if output.location == OutputLocation.AREA else output for output in outputs]
    return answer._replace(body=protocol.pack_outputs(moved))


@data_fault("VALREQ-03", "VALREQ-05", "NNHAL-37", paths=("SYNC-LOCAL", "BURST-LOCAL"))
def refusals_as_general_failure(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Report every ERROR with status GENERAL_FAILURE."""
    answer = relayed.forward(request)
    if answer is None or answer.kind != PacketKind.ERROR:
        return answer
    detail = error_pb2.ErrorDetail.FromString(answer.body)
    detail.status = ErrorStatus.GENERAL_FAILURE  # type: ignore[assignment]
    return answer._replace(body=detail.SerializeToString())


@data_fault("NNHAL-37", select=())
def wrong_definition_accepted(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Accept every DEFINE, and report an invalid request only when it runs."""
    return _replace_by_done(relayed, request) if request.kind == PacketKind.DEFINE else relayed.forward(request)


@data_fault("NNHAL-35", select=())
def unsealed_memory_accepted(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Accept every descriptor as shared memory."""
    return _replace_by_done(relayed, request) if request.kind == PacketKind.SHARE else relayed.forward(request)


def _replace_by_done(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Forward a request, and answer DONE whatever the device answers."""
    answer = relayed.forward(request)
    return answer and Packet(PacketKind.DONE, request.number)


@data_fault("NNHAL-34", select=())
def secret_unchecked(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Accept a HELLO with any secret."""
    if request.kind == PacketKind.HELLO:
        session, _ = protocol.unpack_hello(request.body)
        request = request._replace(body=protocol.pack_hello(session, relayed.opened.data_secret))
    return relayed.forward(request)


@data_fault("NNHAL-36", select=())
def unknown_kinds_answered(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Answer a packet of an unknown kind with DONE."""
    return relayed.forward(request) if request.kind in list(PacketKind) else Packet(PacketKind.DONE, request.number)


@data_fault("NNHAL-38", select=())
def memory_dropped_while_it_is_used(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Forget all requests on DROP."""
    if request.kind == PacketKind.DEFINE:
        relayed.state[request.number] = True
    if request.kind == PacketKind.DROP:
        for number in relayed.state:
            relayed.forward(Packet(PacketKind.FORGET, number))
    return relayed.forward(request)


@data_fault("NNHAL-40", select=())
def execution_goes_on_without_its_client(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Continue an execution after its client disconnects.

    The relay does not notice a disconnected client during an execution, so forwarding is enough.
    """
    return relayed.forward(request)
