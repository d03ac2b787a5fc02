"""Paths of bursts: with one call for each execution, and over one stream. Each execution has a burst of its own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import burst_pb2, error_pb2, prepared_model_pb2, types_pb2
from nnhal_tools.conformance.device.calls import invoke, outcome_from_detail
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PathStep
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.path import expect_ok, owned_object, register_path, run_on_object
from nnhal_tools.conformance.paths.staged import read_outputs, staged_request

NO_IDENTIFIER = -1
"""Identifier of a memory that the burst does not cache."""

BurstMessage = burst_pb2.BurstExecuteRequest | burst_pb2.BurstExecuteWithConfigRequest
BurstTransport = Callable[[Target, bytes, BurstMessage, Sequence[int]], ExecutionOutcome]
"""Executes, and then releases memories: (target, burst, message, identifiers to release)."""


def open_burst(target: Target, model: bytes) -> AbstractContextManager[tuple[CallOutcome, bytes]]:
    """Call configureExecutionBurst. The context yields its outcome and the burst, and releases it at the end."""
    outcome, response = target.call("PreparedModel.ConfigureExecutionBurst", prepared_model=model)
    return owned_object(target, outcome, response.burst if response else b"")


def run_on_burst(target: Target, model: bytes, run: Callable[[bytes], ExecutionOutcome]) -> ExecutionOutcome:
    """Run on a burst of a model. The step of creating the burst comes first."""
    return run_on_object(open_burst(target, model), "GEN-05", "configureExecutionBurst", run)


def execute_message(
    target: Target, burst: bytes, request: types_pb2.Request, identifiers: Sequence[int], options: RunOptions
) -> burst_pb2.BurstExecuteRequest:
    """Return the message of executeSynchronously."""
    fields = {"burst": burst, "request": request, "memory_identifier_tokens": identifiers, **options.plain_fields()}
    message: burst_pb2.BurstExecuteRequest = target.request("Burst.ExecuteSynchronously", **fields)
    return message


def execute_with_config_message(
    target: Target, burst: bytes, request: types_pb2.Request, identifiers: Sequence[int], options: RunOptions
) -> burst_pb2.BurstExecuteWithConfigRequest:
    """Return the message of executeSynchronouslyWithConfig."""
    fields = {"burst": burst, "request": request, "memory_identifier_tokens": identifiers, **options.config_fields()}
    message: burst_pb2.BurstExecuteWithConfigRequest = target.request("Burst.ExecuteSynchronouslyWithConfig", **fields)
    return message


def execute_burst(target: Target, message: BurstMessage) -> ExecutionOutcome:
    """Call IBurst.executeSynchronously or executeSynchronouslyWithConfig."""
    with_config = "WithConfig" if isinstance(message, burst_pb2.BurstExecuteWithConfigRequest) else ""
    return target.execution_outcome(*invoke(target.rpc(f"Burst.ExecuteSynchronously{with_config}"), message))


def release_memory(target: Target, burst: bytes, identifier: int) -> CallOutcome:
    """Call IBurst.releaseMemoryResource."""
    return invoke(target.rpc("Burst.ReleaseMemoryResource"), release_message(target, burst, identifier))[0]


def release_message(target: Target, burst: bytes, identifier: int) -> burst_pb2.ReleaseMemoryResourceRequest:
    """Return the message of releaseMemoryResource."""
    fields = {"burst": burst, "memory_identifier_token": identifier}
    message: burst_pb2.ReleaseMemoryResourceRequest = target.request("Burst.ReleaseMemoryResource", **fields)
    return message


def memory_identifiers(request: types_pb2.Request) -> list[int]:
    """Return 0, 1, ... for pools of memory, and -1 for all others."""
    return [i if pool.WhichOneof("kind") == "pool" else NO_IDENTIFIER for i, pool in enumerate(request.pools)]


# ---- One call for each execution, or a stream -----------------------------------------------------------


def _one_by_one(target: Target, burst: bytes, message: BurstMessage, identifiers: Sequence[int]) -> ExecutionOutcome:
    execution = execute_burst(target, message)
    outcomes = [release_memory(target, burst, identifier) for identifier in identifiers]
    return replace(execution, steps=_release_steps(outcomes, identifiers))


def _over_a_stream(target: Target, burst: bytes, message: BurstMessage, identifiers: Sequence[int]) -> ExecutionOutcome:
    """Execute over a stream, in which only the first message names the session and the burst."""
    releases = [burst_pb2.ReleaseMemoryResourceRequest(memory_identifier_token=number) for number in identifiers]
    answers = call_stream(target, [message, *releases])
    execution = _first_outcome(target, answers)
    if isinstance(answers, CallOutcome):
        return execution
    count = 1 + len(identifiers)
    step = PathStep("GEN-06", len(answers) == count, "a stream of calls", f"{count} answers", str(len(answers)))
    outcomes = [stream_outcome(target, answer).outcome for answer in answers[1:]]
    return replace(execution, steps=(step, *_release_steps(outcomes, identifiers)))


def call_stream(target: Target, messages: Sequence[Any]) -> "list[burst_pb2.BurstStreamResponse] | CallOutcome":
    """Call Burst.Stream with messages and return the answers, or the error that ended the stream."""
    requests = [burst_pb2.BurstStreamRequest(**{_FIELDS[type(message)]: message}) for message in messages]
    stream = target.rpc("Burst.Stream")
    outcome, responses = invoke(lambda _, timeout: list(stream(iter(requests), timeout=timeout)), None)
    return outcome if responses is None else responses


def call_on_stream(target: Target, message: Any) -> ExecutionOutcome:
    """Call Burst.Stream with one message, and return the outcome of its call."""
    return _first_outcome(target, call_stream(target, [message]))


def _first_outcome(target: Target, answers: "list[burst_pb2.BurstStreamResponse] | CallOutcome") -> ExecutionOutcome:
    if isinstance(answers, CallOutcome):
        return ExecutionOutcome(answers)
    if not answers:
        return ExecutionOutcome(CallOutcome(ErrorStatus.GENERAL_FAILURE, "no answer"))
    return stream_outcome(target, answers[0])


_FIELDS: dict[type, str] = {
    burst_pb2.BurstExecuteRequest: "execute",
    burst_pb2.BurstExecuteWithConfigRequest: "execute_with_config",
    burst_pb2.ReleaseMemoryResourceRequest: "release",
    prepared_model_pb2.RunRequest: "run",
}
"""Field of BurstStreamRequest by type of message."""


def stream_outcome(target: Target, response: burst_pb2.BurstStreamResponse) -> ExecutionOutcome:
    """Return the outcome that one answer of a stream reports."""
    kind = response.WhichOneof("answer")
    if kind == "result":
        return target.execution_outcome(CallOutcome(ErrorStatus.NONE), response.result)
    return ExecutionOutcome(CallOutcome(ErrorStatus.NONE) if kind == "released" else _error_outcome(response.error))


def _error_outcome(error: error_pb2.ErrorDetail) -> CallOutcome:
    outcome = outcome_from_detail(error)
    return outcome if outcome.status else replace(outcome, status=ErrorStatus.GENERAL_FAILURE)


def _release_steps(outcomes: Sequence[CallOutcome], identifiers: Sequence[int]) -> tuple[PathStep, ...]:
    pairs = zip(outcomes, identifiers, strict=False)
    return tuple(expect_ok("GEN-07", f"releaseMemoryResource of {number}", outcome) for outcome, number in pairs)


def _execute_with(
    message_of: Callable[[Target, bytes, types_pb2.Request, Sequence[int], RunOptions], BurstMessage],
    transport: BurstTransport,
) -> Any:
    def execute(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
        def run(burst: bytes) -> ExecutionOutcome:
            with staged_request(target, request) as staged:
                pools = len(staged.request.pools)
                identifiers = memory_identifiers(staged.request) if options.cache_memory else [NO_IDENTIFIER] * pools
                message = message_of(target, burst, staged.request, identifiers, options)
                cached = [identifier for identifier in identifiers if identifier != NO_IDENTIFIER]
                execution = transport(target, burst, message, cached)
                return replace(execution, outputs=read_outputs(execution, staged))

        return run_on_burst(target, model, run)

    return execute


register_path("BURST", "GEN-06")(_execute_with(execute_message, _one_by_one))
register_path("BURST-C", "GEN-06")(_execute_with(execute_with_config_message, _one_by_one))
register_path("BURST-STREAM", "GEN-06")(_execute_with(execute_message, _over_a_stream))
register_path("BURST-C-STREAM", "GEN-06")(_execute_with(execute_with_config_message, _over_a_stream))
