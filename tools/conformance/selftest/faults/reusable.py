"""Faults in reusable executions, and in hints."""

from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import memory_pb2
from tools.conformance.selftest.fault import changed_detail, executed, fault, forgiven, invalid_argument, with_errors
from tools.conformance.selftest.proxy import Call

CREATE, UPLOAD = "PreparedModel.CreateReusableExecution", "MemoryService.Upload"
RUN = "Execution.ExecuteSynchronously"


@fault("GEN-19", on=(CREATE, UPLOAD))
def reusable_execution_keeps_old_inputs(call: Call, request: Any) -> Any:
    """A reusable execution reads its inputs when it is made, and never again.

    What is written into their memory afterwards is thrown away.
    """
    if call.method == CREATE:
        used = {argument.location.pool_index for argument in request.request.inputs}
        call.kept.update({request.request.pools[i].pool.mapped.memory: True for i in used})
        return call.forward(request)
    chunks = list(request)
    if chunks[0].memory in call.kept:
        return memory_pb2.UploadResponse(written=sum(len(chunk.data) for chunk in chunks))
    return call.forward(iter(chunks))


@fault("GEN-19", on=(RUN,))
def reusable_execution_runs_once(call: Call, request: Any) -> Any:
    """The second run of a reusable execution does nothing and says that all is well."""
    if request.execution in call.kept:
        return executed()
    call.kept[request.execution] = True
    return call.forward(request)


@fault("GEN-03", on=(CREATE,))
def no_reusable_execution_of_unspecified_outputs(call: Call, request: Any) -> Any:
    """A reusable execution cannot be made where an output has padding."""
    if any(argument.location.padding for argument in request.request.outputs):
        raise invalid_argument("padding is not possible here")
    return call.forward(request)


@fault("EXTRA-07", on=("Execution.Execute*",), select=())
def runs_of_a_reusable_execution_overlap(call: Call, request: Any) -> Any:
    """A run may begin while another one is in progress."""
    return (
        forgiven(call, request, executed(), ErrorStatus.GENERAL_FAILURE)
        if call.method == RUN
        else call.forward(request)
    )


@fault("VALREQ-06", on=(CREATE, RUN))
def bad_reusable_request_as_general_failure(call: Call, request: Any) -> Any:
    """An invalid request of a reusable execution is refused with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return with_errors(call, request, changed_detail(change))


@fault("EXTRA-12", on=("PreparedModel.ExecuteSynchronouslyWithConfig",), select=())
def hints_change_results(call: Call, request: Any) -> Any:
    """Where there are hints, the last byte of each output is another one."""
    result = call.forward(request)
    for output in result.returned if request.config.execution_hints else ():
        if output.inline:
            output.inline = output.inline[:-1] + bytes([output.inline[-1] ^ 0x40])
    return result
