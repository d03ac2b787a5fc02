"""Preparations: notify exactly once, times, hints, extensions, many at once (EXTRA-01, -02, -12, -13, -22, -24)."""

from concurrent.futures import ThreadPoolExecutor

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import Judge, NotServiceSpecific, Unsupported
from tools.conformance.gate import prepared_model
from tools.conformance.paths import calls
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, prepared, request_of, taken
from tools.conformance.target import BOTH_PREPARATIONS, Prepared, Preparing, Run, Target

UNKNOWN_EXTENSION = "org.example.nnhal.conformance"
PREFIX = 0x1234
THREADS = 8


def extension_code(number: int) -> int:
    """A type, operation or hint of the unknown extension."""
    return PREFIX << 16 | number


def with_unknown_operation() -> types_pb2.Model:
    """A valid model whose operation belongs to an extension that no device has."""
    model = named("add_float").model()
    model.extension_name_to_prefix.add(name=UNKNOWN_EXTENSION, prefix=PREFIX)
    model.main.operations[0].type = extension_code(1)  # type: ignore[assignment]
    return model


def invalid_model() -> types_pb2.Model:
    """A model with a dangling input."""
    model = named("add_float").model()
    model.main.operations[0].inputs[0] = 99
    return model


def _expect_one_notify(target: Target, judge: Judge, model: types_pb2.Model, what: str, deadline: int | None) -> None:
    for with_config in (False, True):
        how = Preparing(with_config, deadline_ns=deadline)
        outcome = target.prepare(model, how)
        got = f"{len(outcome.callbacks)} times, {outcome.callback}"
        judge.expect("EXTRA-01", len(outcome.callbacks) == 1, f"notify after {how.call}, {what}", "once", got)
        target.release(outcome.model)


@check("EXTRA-01", "after success")
def notify_after_success(target: Target, judge: Judge) -> None:
    """The model is valid."""
    _expect_one_notify(target, judge, named("add_float").model(), "a valid model", None)


@check("EXTRA-01", "after a launch error")
def notify_after_launch_error(target: Target, judge: Judge) -> None:
    """The model is invalid."""
    _expect_one_notify(target, judge, invalid_model(), "an invalid model", None)


@check("EXTRA-01", "after a failure in the background")
def notify_after_failure(target: Target, judge: Judge) -> None:
    """The model is not supported."""
    _expect_one_notify(target, judge, with_unknown_operation(), "an unsupported model", None)


@check("EXTRA-01", "after a missed deadline")
def notify_after_missed_deadline(target: Target, judge: Judge) -> None:
    """The deadline has passed on arrival."""
    _expect_one_notify(target, judge, named("add_float").model(), "a deadline that has passed", 0)


def _expect_invalid(judge: Judge, check_: str, outcome: Prepared, what: str) -> None:
    statuses = {outcome.launch.status, outcome.callback.status}
    right = statuses == {ErrorStatus.INVALID_ARGUMENT} and not outcome.model
    got = f"launch {outcome.launch}, callback {outcome.callback}{', a model' if outcome.model else ''}"
    judge.expect(check_, right, what, "INVALID_ARGUMENT at launch and in the callback", got)


@check("EXTRA-02", "of preparations")
def times_of_preparations(target: Target, judge: Judge) -> None:
    """A deadline of -2, by both calls."""
    for how in BOTH_PREPARATIONS:
        outcome = target.prepare(named("add_float").model(), Preparing(how.with_config, deadline_ns=-2))
        _expect_invalid(judge, "EXTRA-02", outcome, f"{how.call} with a deadline of -2 ns")


@check("EXTRA-22", "of preparations")
def late_preparation(target: Target, judge: Judge) -> None:
    """No retry can meet a deadline that has passed."""
    outcome = target.prepare(named("add_float").model(), Preparing(deadline_ns=0))
    right = outcome.callback.status in (ErrorStatus.NONE, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
    expected = "MISSED_DEADLINE_PERSISTENT (or NONE)"
    judge.expect("EXTRA-22", right, "prepareModel, deadline 0", expected, outcome.callback)


# ---- Hints ----------------------------------------------------------------------------------------------

Hints = list[tuple[int, bytes]]

ODD_HINTS: dict[str, tuple[Hints, bool]] = {
    "a repeated token": ([(extension_code(1), b"a"), (extension_code(1), b"b")], True),
    "a prefix without a name": ([(extension_code(1), b"a")], False),
}
"""Hints, and whether their extension is named."""


def _configure(
    config: types_pb2.PrepareModelConfig | types_pb2.ExecutionConfig, hints: Hints, named_extension: bool
) -> None:
    if named_extension:
        config.extension_name_to_prefix.add(name=UNKNOWN_EXTENSION, prefix=PREFIX)
    pairs = [types_pb2.TokenValuePair(token=token, value=value) for token, value in hints]
    if isinstance(config, types_pb2.PrepareModelConfig):
        config.compilation_hints.extend(pairs)
    else:
        config.execution_hints.extend(pairs)


def _preparing_config() -> types_pb2.PrepareModelConfig:
    return types_pb2.PrepareModelConfig(preference=1, priority=1)  # type: ignore[arg-type]


@check("EXTRA-12", "unknown extension")
def unknown_hints_are_ignored(target: Target, judge: Judge) -> None:
    """Preparing and executing go on as if they were not there."""
    config, hints = _preparing_config(), [(extension_code(1), b"fast"), (extension_code(2), b"")]
    _configure(config, hints, True)
    outcome = target.prepare_with_config(taken(target, named("add_float")).model(), config)
    what = "prepareModelWithConfig with hints of an unknown extension"
    judge.expect("EXTRA-12", bool(outcome.model), what, "NONE", outcome.callback)
    execution = types_pb2.ExecutionConfig()
    _configure(execution, hints, True)
    executed = target.execute_configured(outcome.model, request_of("add_float"), execution)
    expect_right(judge, "EXTRA-12", "add_float", executed, "an execution with hints of an unknown extension")
    target.release(outcome.model)


@check("EXTRA-12", "on every path with a configuration")
def hints_do_not_change_results(target: Target, judge: Judge) -> None:
    """Bursts, fences and reusable executions take the same configuration."""
    config = types_pb2.ExecutionConfig()
    _configure(config, [(extension_code(1), b"fast")], True)
    with prepared(target, "add_float") as model:
        for path, execute in calls(target).items():
            executed = execute(target, model, request_of("add_float"), Run(hints=config))
            expect_right(judge, "EXTRA-12", "add_float", executed, f"{path} with a hint of an unknown extension")


@check("EXTRA-12", "odd lists")
def odd_hints_do_no_harm(target: Target, judge: Judge) -> None:
    """The sources differ on whether they are ignored or INVALID_ARGUMENT; both will do, nothing else."""
    fine = (ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT)
    with prepared(target, "add_float") as model:
        for what, (hints, named_extension) in ODD_HINTS.items():
            config = _preparing_config()
            _configure(config, hints, named_extension)
            outcome = target.prepare_with_config(named("add_float").model(), config)
            agrees = (outcome.callback.status == ErrorStatus.NONE) == bool(outcome.model)
            right = outcome.callback.status in fine and agrees and len(outcome.callbacks) == 1
            expected = "NONE or INVALID_ARGUMENT"
            judge.expect("EXTRA-12", right, f"preparing with {what}", expected, outcome.callback)
            target.release(outcome.model)
            execution = types_pb2.ExecutionConfig()
            _configure(execution, hints, named_extension)
            answer = target.execute_configured(model, request_of("add_float"), execution).answer
            judge.expect("EXTRA-12", answer.status in fine, f"executing with {what}", expected, answer)


# ---- Extensions -----------------------------------------------------------------------------------------


def _expect_unsupported(target: Target, judge: Judge, model: types_pb2.Model, what: str) -> None:
    answer, supported = target.supported_operations(model)
    refused = answer.status == ErrorStatus.NONE and supported == [False]
    judge.expect("EXTRA-13", refused, f"getSupportedOperations, {what}", "[False]", f"{answer} {supported}")
    for how in BOTH_PREPARATIONS:
        outcome = target.prepare(model, how)
        right = outcome.launch.status == ErrorStatus.NONE and outcome.callback.status != ErrorStatus.NONE
        got = f"launch {outcome.launch}, callback {outcome.callback}{', a model' if outcome.model else ''}"
        expected = "a launch that is OK and an error in the callback, no model"
        judge.expect("EXTRA-13", right and not outcome.model, f"{how.call}, {what}", expected, got)


@check("EXTRA-13", "operation of an unknown extension")
def unknown_operation(target: Target, judge: Judge) -> None:
    """Valid, but not supported."""
    _expect_unsupported(target, judge, with_unknown_operation(), "an operation of an unknown extension")


@check("EXTRA-13", "operand type of an unknown extension")
def unknown_operand_type(target: Target, judge: Judge) -> None:
    """Valid, but not supported; opaque extra parameters are allowed."""
    model = with_unknown_operation()
    model.main.operands[0].type = extension_code(2)  # type: ignore[assignment]
    model.main.operands[0].extra_params.extension = b"\x01"
    _expect_unsupported(target, judge, model, "an operand type of an unknown extension")


@check("EXTRA-13", "prefix that is not in the table")
def unnamed_prefix(target: Target, judge: Judge) -> None:
    """Unsupported or invalid, but never prepared."""
    model = with_unknown_operation()
    model.ClearField("extension_name_to_prefix")
    answer, supported = target.supported_operations(model)
    right = answer.status == ErrorStatus.INVALID_ARGUMENT or supported == [False]
    what = "an operation whose prefix has no name"
    judge.expect("EXTRA-13", right, what, "[False] or INVALID_ARGUMENT", f"{answer} {supported}")
    outcome = target.prepare(model)
    refused = outcome.callback.status != ErrorStatus.NONE and not outcome.model
    judge.expect("EXTRA-13", refused, f"prepareModel, {what}", "an error and no model", outcome.callback)


# ---- Many at once ---------------------------------------------------------------------------------------


@check("EXTRA-24")
def many_preparations_at_once(target: Target, judge: Judge) -> None:
    """Each thread gets a model of its own, which works."""

    def work(_: int) -> Prepared | Exception:
        try:
            return prepared_model(target, named("network").model(), Judge())
        except (NotServiceSpecific, Unsupported) as error:
            return error

    with ThreadPoolExecutor(THREADS) as threads:
        outcomes = list(threads.map(work, range(THREADS)))
    models = [outcome.model for outcome in outcomes if isinstance(outcome, Prepared)]
    failures = [str(outcome) for outcome in outcomes if isinstance(outcome, Exception)]
    distinct = len(set(models)) == THREADS
    got = f"{len(set(models))}; {failures}"
    judge.expect("EXTRA-24", distinct, f"{THREADS} preparations of one model at once", f"{THREADS} models", got)
    for model in models:
        expect_right(judge, "EXTRA-24", "network", target.execute(model, request_of("network")), "one of the models")
    target.release(*models)
