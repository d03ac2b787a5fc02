"""Preparation gate (PREP): the requirements of every check that needs a prepared model, and of rejected models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import (
    CheckFailed,
    CheckRecorder,
    NotServiceSpecific,
    Skipped,
    UnsupportedCase,
    attribute_failures,
)
from nnhal_tools.conformance.device.options import PREPARE_MODEL, PreparationOptions, both_preparations
from nnhal_tools.conformance.device.results import AGREEMENT, CallOutcome, PreparationOutcome
from nnhal_tools.conformance.device.target import Target


@dataclass(frozen=True)
class SupportedOperations:
    """Answer of getSupportedOperations for a model. One query serves both preparations."""

    operations: list[bool]

    @staticmethod
    def query(target: Target, model: types_pb2.Model, recorder: CheckRecorder) -> "SupportedOperations":
        """Call getSupportedOperations and check PREP-01 and PREP-02."""
        try:
            outcome, supported = target.supported_operations(model)
        except NotServiceSpecific as error:
            raise CheckFailed("PREP-01", "getSupportedOperations", "NONE", error) from None
        recorder.expect_status(outcome, "getSupportedOperations", check="PREP-01")
        count = len(model.main.operations)
        expected, got = f"a value for each of {count} operations", f"{len(supported)} values"
        recorder.expect(0 < len(supported) == count, "getSupportedOperations", expected, got, check="PREP-02")
        return SupportedOperations(supported)

    @property
    def all_supported(self) -> bool:
        """True if the whole model is supported."""
        return all(self.operations)

    def require_all(self) -> None:
        """Skip the check unless the whole model is supported.

        Raises:
            Skipped: X1.
        """
        if not self.all_supported:
            count = self.operations.count(False)
            raise Skipped("X1", f"{count} of {len(self.operations)} operations are not supported")


def check_preparation(
    target: Target,
    model: types_pb2.Model,
    recorder: CheckRecorder,
    supported: SupportedOperations,
    options: PreparationOptions = PREPARE_MODEL,
) -> PreparationOutcome:
    """Prepare a model and check PREP-03 to PREP-06.

    Raises:
        CheckFailed: a requirement does not hold; for prepareModelWithConfig GEN-02 fails too.
        Skipped: X1.
    """
    also = ("GEN-02",) if options.with_config else ()
    call = options.call
    try:
        preparation = target.prepare(model, options)
    except NotServiceSpecific as error:
        raise CheckFailed("PREP-03", call, "OK or a service-specific error", error, also) from None
    with attribute_failures(*also):
        _check_callback(recorder, preparation, call)
        status = preparation.callback.status
        if status != ErrorStatus.NONE:
            stimulus = f"{call} of a supported model"
            recorder.expect(not supported.all_supported, stimulus, "NONE", preparation.callback, check="PREP-05")
            raise Skipped("X1", f"the model is not fully supported: {preparation.callback}")
    recorder.mark("PREP-05", "GEN-02" if options.with_config else "GEN-01")
    return preparation


def _check_callback(recorder: CheckRecorder, preparation: PreparationOutcome, call: str) -> None:
    launch = preparation.launch
    recorder.expect(launch.status == ErrorStatus.NONE, call, "a successful launch", launch, check="PREP-03")
    recorder.expect(bool(preparation.callbacks), call, "a callback", "none", check="PREP-04")
    recorder.expect(preparation.agrees, call, AGREEMENT, preparation.got, check="PREP-06")


def query_and_prepare(
    target: Target, model: types_pb2.Model, recorder: CheckRecorder, options: PreparationOptions = PREPARE_MODEL
) -> PreparationOutcome:
    """Check the whole gate, for checks that prepare once."""
    return check_preparation(target, model, recorder, SupportedOperations.query(target, model, recorder), options)


_NO_IDS: Mapping[str, str] = {}


def find_refusal_failure(
    target: Target,
    model: types_pb2.Model,
    check: str,
    defect: str,
    ways: Iterable[PreparationOptions] = both_preparations(),
    *,
    ask: bool = True,
    calls: Mapping[str, str] = _NO_IDS,
) -> CheckFailed | None:
    """Return the failure to reject an invalid model, or None if every call rejects it with INVALID_ARGUMENT.

    Launch and callback must both have this status, and there must be no model.

    Args:
        target: the device.
        model: the invalid model.
        check: the id of the requirement that the model breaks.
        defect: the defect of the model, in words.
        ways: the preparations to try.
        ask: whether to call getSupportedOperations too.
        calls: ids by call, which fail too if the call does not reject the model.
    """
    try:
        if ask:
            outcome, supported = target.supported_operations(model)
            got = f"{outcome} with {len(supported)} values" if supported else str(outcome)
            _expect_invalid([outcome], check, "getSupportedOperations", defect, got, calls)
        for options in ways:
            preparation = target.prepare(model, options)
            got = preparation.got
            _expect_invalid([preparation.launch, preparation.callback], check, options.call, defect, got, calls)
            if preparation.model:
                stimulus = f"{options.call}, {defect}"
                raise CheckFailed(check, stimulus, "no model", got, _ids_of(options.call, calls))
    except CheckFailed as failed:
        return failed
    except (NotServiceSpecific, UnsupportedCase) as error:
        return CheckFailed(check, defect, "INVALID_ARGUMENT", error)
    return None


def expect_model_refused(target: Target, recorder: CheckRecorder, model: types_pb2.Model, defect: str) -> None:
    """Expect that every call rejects an invalid model; see `find_refusal_failure`."""
    recorder.mark(recorder.id)
    if failure := find_refusal_failure(target, model, recorder.id, defect):
        raise failure


def _expect_invalid(
    outcomes: Iterable[CallOutcome], check: str, call: str, defect: str, got: str, calls: Mapping[str, str]
) -> None:
    if any(outcome.status != ErrorStatus.INVALID_ARGUMENT for outcome in outcomes):
        raise CheckFailed(check, f"{call}, {defect}", "INVALID_ARGUMENT", got, _ids_of(call, calls))


def _ids_of(call: str, calls: Mapping[str, str]) -> tuple[str, ...]:
    return (calls[call],) if call in calls else ()
