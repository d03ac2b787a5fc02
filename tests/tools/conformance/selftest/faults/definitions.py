"""Faults in runs of defined requests."""

from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import prepared_model_pb2
from tests.tools.conformance.selftest.fault import fault, ignore_error
from tests.tools.conformance.selftest.proxy import ProxyCall

RUN = "PreparedModel.Run"


@fault("NNHAL-44", on=(RUN,))
def run_repeats_the_first_values(call: ProxyCall, request: Any) -> Any:
    """Execute each run of a definition with the values of its first run."""
    values = call.state.setdefault(request.definition, list(request.values))
    return call.forward(
        prepared_model_pb2.RunRequest(session=request.session, definition=request.definition, values=values)
    )


@fault("NNHAL-45", on=(RUN,), select=())
def run_with_wrong_values_succeeds(call: ProxyCall, request: Any) -> Any:
    """Report success for a run whose values do not match its definition."""
    return ignore_error(call, request, prepared_model_pb2.RunResponse(), ErrorStatus.INVALID_ARGUMENT)


@fault("NNHAL-44", on=(RUN,), select=())
def run_leaves_out_its_values(call: ProxyCall, request: Any) -> Any:
    """Return neither values nor a result."""
    call.forward(request)
    return prepared_model_pb2.RunResponse()
