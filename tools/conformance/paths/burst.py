"""The paths of bursts: call by call, and over one stream. Each execution has a burst of its own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import burst_pb2, error_pb2, prepared_model_pb2, types_pb2
from tools.conformance.paths.path import after, held, path, step
from tools.conformance.paths.staged import read, staged
from tools.conformance.target import Answer, Executed, Run, Step, Target, answer_from, called

NOT_KEPT = -1

Message = burst_pb2.BurstExecuteRequest | burst_pb2.BurstExecuteWithConfigRequest
Calls = Callable[[Target, bytes, Message, Sequence[int]], Executed]
"""Executes and then releases memories: (target, burst, message, identifiers to be released)."""


def bursting(target: Target, model: bytes) -> AbstractContextManager[tuple[Answer, bytes]]:
    """How configureExecutionBurst ended, and the burst, which is dropped at the end."""
    request = prepared_model_pb2.PreparedModelRequest(session=target.session, prepared_model=model)
    answer, made = called(target.prepared_model.ConfigureExecutionBurst, request)
    return held(target, answer, made.burst if made else b"")


def plain_message(
    target: Target, burst: bytes, request: types_pb2.Request, identifiers: Sequence[int], run: Run
) -> burst_pb2.BurstExecuteRequest:
    """The message of executeSynchronously."""
    return burst_pb2.BurstExecuteRequest(
        session=target.session,
        burst=burst,
        request=request,
        memory_identifier_tokens=identifiers,
        **run.plain_fields(),
    )


def config_message(
    target: Target, burst: bytes, request: types_pb2.Request, identifiers: Sequence[int], run: Run
) -> burst_pb2.BurstExecuteWithConfigRequest:
    """The message of executeSynchronouslyWithConfig."""
    return burst_pb2.BurstExecuteWithConfigRequest(
        session=target.session,
        burst=burst,
        request=request,
        memory_identifier_tokens=identifiers,
        **run.config_fields(),
    )


def call(target: Target, message: Message) -> Executed:
    """IBurst.executeSynchronously or executeSynchronouslyWithConfig."""
    plain = isinstance(message, burst_pb2.BurstExecuteRequest)
    method = target.bursts.ExecuteSynchronously if plain else target.bursts.ExecuteSynchronouslyWithConfig
    return target.executed(*called(method, message))


def released(target: Target, burst: bytes, identifier: int) -> Answer:
    """IBurst.releaseMemoryResource."""
    return called(target.bursts.ReleaseMemoryResource, release_message(target, burst, identifier))[0]


def release_message(target: Target, burst: bytes, identifier: int) -> burst_pb2.ReleaseMemoryResourceRequest:
    """The message of releaseMemoryResource."""
    return burst_pb2.ReleaseMemoryResourceRequest(
        session=target.session, burst=burst, memory_identifier_token=identifier
    )


def identifiers_of(request: types_pb2.Request) -> list[int]:
    """0, 1, ... for pools of memory, -1 for all others."""
    return [i if pool.WhichOneof("kind") == "pool" else NOT_KEPT for i, pool in enumerate(request.pools)]


# ---- Call by call, or over a stream ---------------------------------------------------------------------


def _one_by_one(target: Target, burst: bytes, message: Message, identifiers: Sequence[int]) -> Executed:
    executed = call(target, message)
    answers = [released(target, burst, identifier) for identifier in identifiers]
    return replace(executed, steps=_releases(answers, identifiers))


def _over_a_stream(target: Target, burst: bytes, message: Message, identifiers: Sequence[int]) -> Executed:
    """Only the first message names session and burst."""
    releases = [burst_pb2.ReleaseMemoryResourceRequest(memory_identifier_token=number) for number in identifiers]
    answers = stream(target, [message, *releases])
    if isinstance(answers, Answer):
        return Executed(answers)
    executed = outcome(target, answers[0]) if answers else Executed(Answer(ErrorStatus.GENERAL_FAILURE, "no answer"))
    told = len(answers) == 1 + len(identifiers)
    whole = Step("GEN-06", told, "a stream of calls", f"{1 + len(identifiers)} answers", str(len(answers)))
    ends = [outcome(target, answer).answer for answer in answers[1:]]
    return replace(executed, steps=(whole, *_releases(ends, identifiers)))


def stream(target: Target, messages: Sequence[Any]) -> "list[burst_pb2.BurstStreamResponse] | Answer":
    """Burst.Stream of some calls: the answers, or the error that the stream ended with."""
    requests = [burst_pb2.BurstStreamRequest(**{_FIELDS[type(message)]: message}) for message in messages]
    answer, responses = called(lambda r, timeout: list(target.bursts.Stream(iter(r), timeout=timeout)), requests)
    return answer if responses is None else responses


_FIELDS: dict[type, str] = {
    burst_pb2.BurstExecuteRequest: "execute",
    burst_pb2.BurstExecuteWithConfigRequest: "execute_with_config",
    burst_pb2.ReleaseMemoryResourceRequest: "release",
}


def outcome(target: Target, response: burst_pb2.BurstStreamResponse) -> Executed:
    """One answer of a stream."""
    kind = response.WhichOneof("answer")
    if kind == "result":
        return target.executed(Answer(ErrorStatus.NONE), response.result)
    return Executed(Answer(ErrorStatus.NONE) if kind == "released" else _told(response.error))


def _told(error: error_pb2.ErrorDetail) -> Answer:
    answer = answer_from(error)
    return answer if answer.status else replace(answer, status=ErrorStatus.GENERAL_FAILURE)


def _releases(answers: Sequence[Answer], identifiers: Sequence[int]) -> tuple[Step, ...]:
    pairs = zip(answers, identifiers, strict=False)
    return tuple(step("GEN-07", f"releaseMemoryResource of {number}", answer) for answer, number in pairs)


def _burst(message_of: Callable[[Target, bytes, types_pb2.Request, Sequence[int], Run], Message], calls: Calls) -> Any:
    def execute(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
        with bursting(target, model) as (answer, burst), staged(target, request) as made:
            steps = [step("GEN-05", "configureExecutionBurst", answer)]
            if answer.status:
                return Executed(answer, steps=steps)
            kept = identifiers_of(made.request) if run.keep else [NOT_KEPT] * len(made.request.pools)
            message = message_of(target, burst, made.request, kept, run)
            executed = calls(target, burst, message, [number for number in kept if number != NOT_KEPT])
            return after(steps, replace(executed, outputs=read(executed, made)))

    return execute


path("BURST", "GEN-06")(_burst(plain_message, _one_by_one))
path("BURST-C", "GEN-06")(_burst(config_message, _one_by_one))
path("BURST-STREAM", "GEN-06")(_burst(plain_message, _over_a_stream))
path("BURST-C-STREAM", "GEN-06")(_burst(config_message, _over_a_stream))
