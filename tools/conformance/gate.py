"""The preparation gate (PREP): what must hold wherever a check needs a prepared model. Also: how models are refused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import CheckFailed, Judge, NotServiceSpecific, Skipped, Unsupported
from tools.conformance.target import BOTH_PREPARATIONS, PREPARE_MODEL, Answer, Prepared, Preparing, Target


@dataclass(frozen=True)
class Supported:
    """What getSupportedOperations says of a model; it is asked once for both preparations."""

    operations: list[bool]

    @staticmethod
    def ask(target: Target, model: types_pb2.Model, judge: Judge) -> "Supported":
        """PREP-01 and PREP-02."""
        try:
            answer, supported = target.supported_operations(model)
        except NotServiceSpecific as error:
            raise CheckFailed("PREP-01", "getSupportedOperations", "NONE", error) from None
        judge.expect("PREP-01", answer.status == ErrorStatus.NONE, "getSupportedOperations", "NONE", answer)
        count = len(model.main.operations)
        judge.expect(
            "PREP-02",
            0 < len(supported) == count,
            "getSupportedOperations",
            f"an answer for each of {count} operations",
            f"{len(supported)} answers",
        )
        return Supported(supported)

    @property
    def all(self) -> bool:
        """Whether the whole model is supported."""
        return all(self.operations)

    def demand(self) -> None:
        """Ends what needs the whole model.

        Raises:
            Skipped: X1.
        """
        if not self.all:
            count = self.operations.count(False)
            raise Skipped("X1", f"not fully supported: {count} of {len(self.operations)} operations")


def prepare(
    target: Target, model: types_pb2.Model, judge: Judge, supported: Supported, how: Preparing = PREPARE_MODEL
) -> Prepared:
    """PREP-03 to PREP-06.

    Raises:
        CheckFailed: something does not hold; with GEN-02 where it was prepareModelWithConfig.
        Skipped: X1.
    """
    also = ("GEN-02",) if how.with_config else ()
    call = how.call
    try:
        prepared = target.prepare(model, how)
    except NotServiceSpecific as error:
        raise CheckFailed("PREP-03", call, "OK or a service-specific error", error, also) from None
    try:
        _expect_callback(judge, prepared, call)
        status = prepared.callback.status
        if status != ErrorStatus.NONE:
            judge.expect("PREP-05", not supported.all, f"{call} of a supported model", "NONE", prepared.callback)
            raise Skipped("X1", f"not fully supported: {prepared.callback}")
    except CheckFailed as failed:
        raise CheckFailed(failed.check, failed.stimulus, failed.expected, failed.got, also) from None
    judge.checks["PREP-05"] = judge.checks["GEN-02" if how.with_config else "GEN-01"] = None
    return prepared


def _expect_callback(judge: Judge, prepared: Prepared, call: str) -> None:
    judge.expect("PREP-03", prepared.launch.status == ErrorStatus.NONE, call, "a launch that is OK", prepared.launch)
    judge.expect("PREP-04", bool(prepared.callbacks), call, "a callback", "none")
    agrees = (prepared.callback.status == ErrorStatus.NONE) == bool(prepared.model)
    judge.expect(
        "PREP-06",
        agrees,
        call,
        "a model exactly with NONE",
        f"{prepared.callback} {'with' if prepared.model else 'without'} a model",
    )


def prepared_model(target: Target, model: types_pb2.Model, judge: Judge, how: Preparing = PREPARE_MODEL) -> Prepared:
    """The whole gate, for checks that prepare once."""
    return prepare(target, model, judge, Supported.ask(target, model, judge), how)


_NO_IDS: Mapping[str, str] = {}


def refused(
    target: Target,
    model: types_pb2.Model,
    check: str,
    place: str,
    ways: Iterable[Preparing] = BOTH_PREPARATIONS,
    *,
    ask: bool = True,
    calls: Mapping[str, str] = _NO_IDS,
) -> CheckFailed | None:
    """What is wrong with how an invalid model is refused; None where every call does so with INVALID_ARGUMENT.

    Args:
        check: id of what makes it invalid.
        place: what that is, in words.
        ways: how it is prepared: launch and callback must both say INVALID_ARGUMENT, and there must be no model.
        ask: whether getSupportedOperations is asked, too.
        calls: ids that do not hold either when a call does not refuse the model.
    """
    try:
        if ask:
            answer, supported = target.supported_operations(model)
            got = f"{answer} with {len(supported)} answers" if supported else str(answer)
            _expect_invalid([answer], check, "getSupportedOperations", place, got, calls)
        for how in ways:
            prepared = target.prepare(model, how)
            got = f"launch {prepared.launch}, callback {prepared.callback}{', a model' if prepared.model else ''}"
            _expect_invalid([prepared.launch, prepared.callback], check, how.call, place, got, calls)
            if prepared.model:
                raise CheckFailed(check, f"{how.call}, {place}", "no model", got, _also(how.call, calls))
    except CheckFailed as failed:
        return failed
    except (NotServiceSpecific, Unsupported) as error:
        return CheckFailed(check, place, "INVALID_ARGUMENT", error)
    return None


def _expect_invalid(
    answers: Iterable[Answer], check: str, call: str, place: str, got: str, calls: Mapping[str, str]
) -> None:
    if any(answer.status != ErrorStatus.INVALID_ARGUMENT for answer in answers):
        raise CheckFailed(check, f"{call}, {place}", "INVALID_ARGUMENT", got, _also(call, calls))


def _also(call: str, calls: Mapping[str, str]) -> tuple[str, ...]:
    return (calls[call],) if call in calls else ()
