"""Paths SYNC-D and BURST-D-STREAM, which define a request and run it twice.

Pools inside the message become values of the runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import burst_pb2, prepared_model_pb2, types_pb2
from nnhal_tools.conformance.device.calls import invoke
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import OK, CallOutcome, ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.burst import call_stream, run_on_burst, stream_outcome
from nnhal_tools.conformance.paths.path import owned_object, register_path, run_twice


@dataclass(frozen=True)
class RunnableRequest:
    """A request with ValuePools that the device has been asked to define.

    `defined` is an empty response if the call failed. `values` are the bytes that the request had in place of pools.
    """

    outcome: CallOutcome
    defined: prepared_model_pb2.DefineResponse
    request: types_pb2.Request
    values: Sequence[bytes]

    def message(
        self, target: Target, values: Sequence[bytes] | None = None, deadline_ns: int | None = None
    ) -> prepared_model_pb2.RunRequest:
        """Return the message of a run, with the values of the request if no others are given."""
        values = self.values if values is None else values
        message: prepared_model_pb2.RunRequest = target.request(
            "PreparedModel.Run", definition=self.defined.definition, values=values, deadline_ns=deadline_ns
        )
        return message

    def run(
        self, target: Target, values: Sequence[bytes] | None = None, deadline_ns: int | None = None
    ) -> ExecutionOutcome:
        """Call PreparedModel.Run."""
        outcome, response = invoke(target.rpc("PreparedModel.Run"), self.message(target, values, deadline_ns))
        return ExecutionOutcome(outcome) if response is None else self.read(target, response)

    def read(self, target: Target, response: prepared_model_pb2.RunResponse) -> ExecutionOutcome:
        """Return the outcome that the response to a run reports."""
        if response.HasField("result"):
            return target.execution_outcome(OK, response.result)
        pools = self.request.pools
        returned = [
            not argument.has_no_value and pools[argument.location.pool_index].HasField("returned")
            for argument in self.request.outputs
        ]
        if len(response.values) != sum(returned) or len(self.defined.output_shapes) != len(returned):
            reason = f"the harness: {len(response.values)} values for {sum(returned)} outputs, and no result"
            return ExecutionOutcome(CallOutcome(ErrorStatus.GENERAL_FAILURE, reason))
        values = iter(response.values)
        outputs: list[Bytes | None] = [np.frombuffer(next(values), np.uint8) if each else None for each in returned]
        return ExecutionOutcome(OK, self.defined.output_shapes, outputs=outputs)

    def read_answer(self, target: Target, answer: burst_pb2.BurstStreamResponse) -> ExecutionOutcome:
        """Return the outcome that the answer of a stream to a run reports."""
        if answer.WhichOneof("answer") == "ran":
            return self.read(target, answer.ran)
        return stream_outcome(target, answer)


@contextmanager
def runnable_request(
    target: Target, handle: bytes, request: types_pb2.Request, config: types_pb2.ExecutionConfig | None = None
) -> Iterator[RunnableRequest]:
    """Call PreparedModel.Define for a prepared model or a burst. The definition is released at the end."""
    with_values, values = deepcopy(request), []
    for pool in with_values.pools:
        if pool.pool.WhichOneof("memory") == "inline":
            values.append(pool.pool.inline)
            pool.value.size = len(values[-1])
    outcome, response = target.call("PreparedModel.Define", target=handle, request=with_values, config=config)
    defined = response or prepared_model_pb2.DefineResponse()
    with owned_object(target, outcome, defined.definition) as (outcome, _):
        yield RunnableRequest(outcome, defined, with_values, values)


@register_path("SYNC-D", "GEN-04")
def _synchronous(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
    with runnable_request(target, model, request, options.config) as runnable:
        if runnable.outcome.status:
            return ExecutionOutcome(runnable.outcome)
        return run_twice(lambda: runnable.run(target, deadline_ns=options.deadline_ns))


@register_path("BURST-D-STREAM", "GEN-06")
def _on_a_stream(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
    """Run twice on a stream, for a definition of a burst."""

    def run(burst: bytes) -> ExecutionOutcome:
        with runnable_request(target, burst, request, options.config) as runnable:
            if runnable.outcome.status:
                return ExecutionOutcome(runnable.outcome)
            message = runnable.message(target, deadline_ns=options.deadline_ns)
            answers = call_stream(target, [message, message])
            if isinstance(answers, CallOutcome):
                return ExecutionOutcome(answers)
            if len(answers) != 2:
                reason = f"the harness: {len(answers)} answers to 2 calls"
                return ExecutionOutcome(CallOutcome(ErrorStatus.GENERAL_FAILURE, reason))
            remaining = iter(answers)
            return run_twice(lambda: runnable.read_answer(target, next(remaining)))

    return run_on_burst(target, model, run)
