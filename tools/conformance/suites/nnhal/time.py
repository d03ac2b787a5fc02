"""Work that is late is not done (NNHAL-01, -02)."""

from tools.conformance.check import Judge
from tools.conformance.paths import calls
from tools.conformance.registry import check
from tools.conformance.samples import named, prepared, request_of
from tools.conformance.target import Preparing, Run, Target, mapped

SENTINEL = b"\xa5"


@check("NNHAL-01")
def late_preparation_is_not_done(target: Target, judge: Judge) -> None:
    """0 ns from now is a deadline that has passed."""
    for with_config in (False, True):
        how = Preparing(with_config, deadline_ns=0)
        outcome = target.prepare(named("network").model(), how)
        missed = outcome.callback.is_missed_deadline and not outcome.model
        got = f"launch {outcome.launch}, callback {outcome.callback}{', a model' if outcome.model else ''}"
        judge.expect("NNHAL-01", missed, f"{how.call}, deadline 0", "MISSED_DEADLINE_* and no model", got)


@check("NNHAL-02")
def late_execution_is_not_done(target: Target, judge: Judge) -> None:
    """Nothing is written."""
    with prepared(target, "add_float") as model:
        for path, execute in calls(target).items():
            request = request_of("add_float")
            before = SENTINEL * request.pools[1].returned.size
            handle = target.filled(before)
            request.pools[1].pool.CopyFrom(mapped(handle))
            answer = execute(target, model, request, Run(deadline_ns=0)).answer
            judge.expect("NNHAL-02", answer.is_missed_deadline, f"{path}, deadline 0", "MISSED_DEADLINE_*", answer)
            same = target.read(handle) == before
            judge.expect("NNHAL-02", same, f"{path}, deadline 0: the outputs", "untouched", "written")
            target.release(handle)
