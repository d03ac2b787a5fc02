"""Preparations: callbacks, times, hints, extensions, concurrency (EXTRA-01, -02, -12, -13, -22, -24)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder, NotServiceSpecific, UnsupportedCase
from nnhal_tools.conformance.device.options import PREPARE_MODEL, PreparationOptions, RunOptions, both_preparations
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import reachable_calls
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_request,
    expect_correct,
    prepared_model,
    supported_model,
)

UNKNOWN_EXTENSION = "org.example.nnhal.conformance"
PREFIX = 0x1234
THREADS = 8


def extension_code(number: int) -> int:
    """Return the code of an operand type, operation or hint of the unknown extension."""
    return PREFIX << 16 | number


def unsupported_model() -> types_pb2.Model:
    """Return a valid model whose operation belongs to an extension that no device supports."""
    model = builtin_case("add_float").model()
    model.extension_name_to_prefix.add(name=UNKNOWN_EXTENSION, prefix=PREFIX)
    model.main.operations[0].type = extension_code(1)  # type: ignore[assignment]
    return model


def invalid_model() -> types_pb2.Model:
    """Return a model with an operand index out of range."""
    model = builtin_case("add_float").model()
    model.main.operations[0].inputs[0] = 99
    return model


@dataclass(frozen=True)
class Situation:
    """Model and deadline of a preparation, and whether its launch succeeds."""

    name: str
    model: Callable[[], types_pb2.Model]
    launched: bool = True
    deadline_ns: int | None = None


def _valid_model() -> types_pb2.Model:
    return builtin_case("add_float").model()


SITUATIONS = {
    "success": Situation("a valid model", _valid_model),
    "a launch error": Situation("an invalid model", invalid_model, launched=False),
    "a failure in the background": Situation("an unsupported model", unsupported_model),
    "a missed deadline": Situation("a deadline that has passed", _valid_model, deadline_ns=0),
}
"""Situations by how the preparation ends."""


def _register_notify(end: str, situation: Situation) -> None:
    @check("EXTRA-01", f"after {end}")
    def notify_comes_once(target: Target, recorder: CheckRecorder) -> None:
        for options in both_preparations(situation.deadline_ns):
            outcome = target.prepare(situation.model(), options)
            got = f"{len(outcome.callbacks)} times, {outcome.callback}"
            stimulus = f"notify after {options.call}, {situation.name}"
            recorder.expect(len(outcome.callbacks) == 1, stimulus, "once", got)
            target.release(outcome.model)


for _end, _situation in SITUATIONS.items():
    _register_notify(_end, _situation)


@check("EXTRA-01", "on a session that has ended")
def notify_on_a_closed_session(target: Target, recorder: CheckRecorder) -> None:
    """Check that notify comes once, with the status of the launch, if the client's session has ended."""
    with target.new_session() as session:
        session.call("Session.Close")
        for options in both_preparations():
            outcome = session.prepare(builtin_case("add_float").model(), options)
            status = outcome.launch.status
            right = outcome.events == ["notify"] and status == outcome.callback.status != ErrorStatus.NONE
            got = f"{outcome.events}, {outcome.got}"
            stimulus, expected = f"{options.call} on a closed session", "one notify, with the status of the launch"
            recorder.expect(right, stimulus, expected, got)


def _expect_invalid(recorder: CheckRecorder, outcome: PreparationOutcome, stimulus: str) -> None:
    statuses = {outcome.launch.status, outcome.callback.status}
    right = statuses == {ErrorStatus.INVALID_ARGUMENT} and not outcome.model
    recorder.expect(right, stimulus, "INVALID_ARGUMENT at launch and in the callback", outcome.got)


@check("EXTRA-02", "preparations")
def times_of_preparations(target: Target, recorder: CheckRecorder) -> None:
    """Check that both preparation calls reject a deadline of -2."""
    for options in both_preparations(deadline_ns=-2):
        outcome = target.prepare(builtin_case("add_float").model(), options)
        _expect_invalid(recorder, outcome, f"{options.call} with a deadline of -2 ns")


@check("EXTRA-22", "preparations")
def expired_preparation(target: Target, recorder: CheckRecorder) -> None:
    """Check that a deadline that has passed is persistent, because a retry cannot meet it."""
    outcome = target.prepare(builtin_case("add_float").model(), PreparationOptions(deadline_ns=0))
    right = outcome.callback.status in (ErrorStatus.NONE, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
    expected = "MISSED_DEADLINE_PERSISTENT (or NONE)"
    recorder.expect(right, "prepareModel, deadline 0", expected, outcome.callback)


# ---- Hints ----------------------------------------------------------------------------------------------

Hints = list[tuple[int, bytes]]

ODD_HINTS: dict[str, tuple[Hints, bool]] = {
    "a repeated token": ([(extension_code(1), b"a"), (extension_code(1), b"b")], True),
    "a prefix without a name": ([(extension_code(1), b"a")], False),
}
"""Hints, with whether the prefix table names their extension."""


def _hint_fields(name: str, hints: Hints, named_extension: bool) -> dict[str, Any]:
    """Return the fields of a configuration with hints. `name`: the field of the hints."""
    table = [{"name": UNKNOWN_EXTENSION, "prefix": PREFIX}] if named_extension else []
    return {"extension_name_to_prefix": table, name: [{"token": token, "value": value} for token, value in hints]}


def _preparation_config(hints: Hints, named_extension: bool = True) -> types_pb2.PrepareModelConfig:
    fields = _hint_fields("compilation_hints", hints, named_extension)
    return types_pb2.PrepareModelConfig(**PREPARE_MODEL.fields(), **fields)


def _run_options(hints: Hints, named_extension: bool = True) -> RunOptions:
    return RunOptions(hints=types_pb2.ExecutionConfig(**_hint_fields("execution_hints", hints, named_extension)))


@check("EXTRA-12", "unknown extension")
def unknown_hints_are_ignored(target: Target, recorder: CheckRecorder) -> None:
    """Check that preparing and executing succeed with hints of an unknown extension."""
    hints = [(extension_code(1), b"fast"), (extension_code(2), b"")]
    model = supported_model(target, builtin_case("add_float"))
    outcome = target.prepare_with_config(model, _preparation_config(hints))
    stimulus = "prepareModelWithConfig with hints of an unknown extension"
    recorder.expect(bool(outcome.model), stimulus, "NONE", outcome.callback)
    execution = target.execute_with_config(outcome.model, builtin_request("add_float"), _run_options(hints))
    expect_correct(recorder, "add_float", execution, "an execution with hints of an unknown extension")
    target.release(outcome.model)


@check("EXTRA-12", "every path with a configuration")
def hints_do_not_change_results(target: Target, recorder: CheckRecorder) -> None:
    """Check hints on every path, since bursts, fences and reusable executions take the same configuration."""
    run = _run_options([(extension_code(1), b"fast")])
    with prepared_model(target, "add_float") as model:
        for path, execute in reachable_calls(target).items():
            execution = execute(target, model, builtin_request("add_float"), run)
            expect_correct(recorder, "add_float", execution, f"{path} with a hint of an unknown extension")


@check("EXTRA-12", "repeated tokens and unnamed prefixes")
def odd_hints_are_harmless(target: Target, recorder: CheckRecorder) -> None:
    """Check that odd lists of hints are ignored or rejected.

    The sources disagree, so both NONE and INVALID_ARGUMENT are valid.
    """
    allowed = (ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT)
    with prepared_model(target, "add_float") as model:
        for situation, odd_hints in ODD_HINTS.items():
            outcome = target.prepare_with_config(builtin_case("add_float").model(), _preparation_config(*odd_hints))
            right = outcome.callback.status in allowed and outcome.agrees and len(outcome.callbacks) == 1
            expected = "NONE or INVALID_ARGUMENT"
            recorder.expect(right, f"preparing with {situation}", expected, outcome.callback)
            target.release(outcome.model)
            answer = target.execute_with_config(model, builtin_request("add_float"), _run_options(*odd_hints)).outcome
            recorder.expect(answer.status in allowed, f"executing with {situation}", expected, answer)


# ---- Extensions -----------------------------------------------------------------------------------------


def _expect_unsupported(target: Target, recorder: CheckRecorder, model: types_pb2.Model, situation: str) -> None:
    answer, supported = target.supported_operations(model)
    refused = answer.status == ErrorStatus.NONE and supported == [False]
    recorder.expect(refused, f"getSupportedOperations, {situation}", "[False]", f"{answer} {supported}")
    for options in both_preparations():
        outcome = target.prepare(model, options)
        right = outcome.launch.status == ErrorStatus.NONE and outcome.callback.status != ErrorStatus.NONE
        expected = "NONE at launch, an error in the callback, and no model"
        recorder.expect(right and not outcome.model, f"{options.call}, {situation}", expected, outcome.got)


@check("EXTRA-13", "operation of an unknown extension")
def unknown_operation(target: Target, recorder: CheckRecorder) -> None:
    """Check that an operation of an unknown extension is valid but not supported."""
    _expect_unsupported(target, recorder, unsupported_model(), "an operation of an unknown extension")


@check("EXTRA-13", "operand type of an unknown extension")
def unknown_operand_type(target: Target, recorder: CheckRecorder) -> None:
    """Check that an operand type of an unknown extension is valid but not supported, even with extra parameters."""
    model = unsupported_model()
    model.main.operands[0].type = extension_code(2)  # type: ignore[assignment]
    model.main.operands[0].extra_params.extension = b"\x01"
    _expect_unsupported(target, recorder, model, "an operand type of an unknown extension")


@check("EXTRA-13", "prefix that is not in the table")
def unnamed_prefix(target: Target, recorder: CheckRecorder) -> None:
    """Check that an operation with an unnamed prefix is unsupported or invalid, and never prepared."""
    model = unsupported_model()
    model.ClearField("extension_name_to_prefix")
    answer, supported = target.supported_operations(model)
    right = answer.status == ErrorStatus.INVALID_ARGUMENT or supported == [False]
    stimulus = "an operation whose prefix has no name"
    recorder.expect(right, stimulus, "[False] or INVALID_ARGUMENT", f"{answer} {supported}")
    outcome = target.prepare(model)
    refused = outcome.callback.status != ErrorStatus.NONE and not outcome.model
    recorder.expect(refused, f"prepareModel, {stimulus}", "an error and no model", outcome.callback)


# ---- Concurrency ----------------------------------------------------------------------------------------


@check("EXTRA-24")
def many_preparations_at_once(target: Target, recorder: CheckRecorder) -> None:
    """Check that each of several concurrent preparations returns its own model, which executes correctly."""

    def work(_: int) -> PreparationOutcome | Exception:
        try:
            return query_and_prepare(target, builtin_case("network").model(), CheckRecorder())
        except (NotServiceSpecific, UnsupportedCase) as error:
            return error

    with ThreadPoolExecutor(THREADS) as threads:
        outcomes = list(threads.map(work, range(THREADS)))
    models = [outcome.model for outcome in outcomes if isinstance(outcome, PreparationOutcome)]
    failures = [str(outcome) for outcome in outcomes if isinstance(outcome, Exception)]
    distinct = len(set(models)) == THREADS
    got = f"{len(set(models))}; {failures}"
    recorder.expect(distinct, f"{THREADS} preparations of one model at once", f"{THREADS} models", got)
    for model in models:
        execution = target.execute(model, builtin_request("network"))
        expect_correct(recorder, "network", execution, f"one of {THREADS} models that were prepared at once")
    target.release(*models)
