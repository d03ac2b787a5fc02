"""Requests that are defined once and run with other values each time (NNHAL-44, -45)."""

from collections.abc import Sequence

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.burst import call_stream, open_burst
from nnhal_tools.conformance.paths.defined import RunnableRequest, runnable_request
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_request, expect_correct, prepared_model

MODEL = "add_float"


@check("NNHAL-44")
def runs_with_other_values(target: Target, recorder: CheckRecorder) -> None:
    """Run definitions of a model and of a burst with zeros and with the values of a vector, in turns."""
    with prepared_model(target, MODEL) as model, open_burst(target, model) as (_, burst):
        for owner, handle in (("a model", model), ("a burst", burst)):
            with runnable_request(target, handle, builtin_request(MODEL)) as runnable:
                _expect_defined(recorder, owner, runnable)
                zeros = [bytes(len(value)) for value in runnable.values]
                turns = [zeros, runnable.values, zeros, runnable.values]
                by_call = [runnable.run(target, values) for values in turns]
                _expect_turns(recorder, f"a definition of {owner}", by_call)
                _expect_turns(recorder, f"a definition of {owner}, on a stream", _on_a_stream(target, runnable, turns))


@check("NNHAL-45")
def runs_with_wrong_values(target: Target, recorder: CheckRecorder) -> None:
    """Run a definition with values that do not match it, and then with those that do."""
    with (
        prepared_model(target, MODEL) as model,
        runnable_request(target, model, builtin_request(MODEL)) as runnable,
    ):
        _expect_defined(recorder, "a model", runnable)
        (value,) = runnable.values
        wrong: dict[str, Sequence[bytes]] = {
            "no value": [],
            "a value too many": [value, value],
            "an empty value": [b""],
            "a value that is too short": [value[:-1]],
            "a value that is too long": [value + b"\0"],
        }
        for stimulus, values in wrong.items():
            outcome = runnable.run(target, values).outcome
            recorder.expect_status(outcome, f"a run with {stimulus}", ErrorStatus.INVALID_ARGUMENT)
        expect_correct(recorder, MODEL, runnable.run(target), "a run after wrong ones")


def _expect_defined(recorder: CheckRecorder, owner: str, runnable: RunnableRequest) -> None:
    recorder.expect_status(runnable.outcome, f"Define for {owner}")


def _on_a_stream(target: Target, runnable: RunnableRequest, turns: Sequence[Sequence[bytes]]) -> list[ExecutionOutcome]:
    answers = call_stream(target, [runnable.message(target, values) for values in turns])
    if isinstance(answers, CallOutcome):
        return [ExecutionOutcome(answers)] * len(turns)
    return [runnable.read_answer(target, answer) for answer in answers]


def _expect_turns(recorder: CheckRecorder, stimulus: str, executions: Sequence[ExecutionOutcome]) -> None:
    """Check that every second execution has the outputs of the vector."""
    recorder.expect(len(executions) == 4, stimulus, "4 answers", len(executions))
    for execution in executions[1::2]:
        expect_correct(recorder, MODEL, execution, f"{stimulus}, after a run with other values")
