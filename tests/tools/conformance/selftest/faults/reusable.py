"""Faults in reusable executions and in hints."""

from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import memory_pb2
from tests.tools.conformance.selftest.fault import (
    edit_detail,
    fake_result,
    fault,
    ignore_error,
    invalid_argument,
    replace_errors,
)
from tests.tools.conformance.selftest.proxy import ProxyCall

CREATE, UPLOAD = "PreparedModel.CreateReusableExecution", "MemoryService.Upload"
RUN = "Execution.ExecuteSynchronously"


@fault("GEN-19", on=(CREATE, UPLOAD))
def reusable_execution_keeps_old_inputs(call: ProxyCall, request: Any) -> Any:
    """Read the inputs of a reusable execution only when it is created.

    The hook discards later writes to the memory of the inputs.
    """
    if call.method == CREATE:
        used = {argument.location.pool_index for argument in request.request.inputs}
        call.state.update({request.request.pools[i].pool.mapped.memory: True for i in used})
        return call.forward(request)
    chunks = list(request)
    if chunks[0].memory in call.state:
        return memory_pb2.UploadResponse(written=sum(len(chunk.data) for chunk in chunks))
    return call.forward(iter(chunks))


@fault("GEN-19", on=(RUN,))
def reusable_execution_runs_once(call: ProxyCall, request: Any) -> Any:
    """Report success for the second run of a reusable execution without running it."""
    if request.execution in call.state:
        return fake_result()
    call.state[request.execution] = True
    return call.forward(request)


@fault("GEN-03", on=(CREATE,))
def no_reusable_execution_of_unspecified_outputs(call: ProxyCall, request: Any) -> Any:
    """Reject a reusable execution if an output has padding."""
    if any(argument.location.padding for argument in request.request.outputs):
        raise invalid_argument("padding is not supported")
    return call.forward(request)


@fault("EXTRA-07", on=("Execution.Execute*",), select=())
def runs_of_a_reusable_execution_overlap(call: ProxyCall, request: Any) -> Any:
    """Accept a run of a reusable execution while another one is in progress."""
    return (
        ignore_error(call, request, fake_result(), ErrorStatus.GENERAL_FAILURE)
        if call.method == RUN
        else call.forward(request)
    )


@fault("VALREQ-06", on=(CREATE, RUN))
def bad_reusable_request_as_general_failure(call: ProxyCall, request: Any) -> Any:
    """Reject an invalid request of a reusable execution with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return replace_errors(call, request, edit_detail(change))


@fault("EXTRA-12", on=("PreparedModel.ExecuteSynchronouslyWithConfig",), select=())
def hints_change_results(call: ProxyCall, request: Any) -> Any:
    """Change the last byte of each output if the execution has hints."""
    result = call.forward(request)
    for output in result.returned if request.config.execution_hints else ():
        if output.inline:
            output.inline = output.inline[:-1] + bytes([output.inline[-1] ^ 0x40])
    return result
