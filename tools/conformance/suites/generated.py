"""The suite `generated`: every vector is prepared and executed as the checklist's GEN section says.

On each path, and on models of both preparations, a case runs with fully specified outputs; then, unless it has a RANK,
IF or WHILE, with outputs of unspecified dimensions and with output 0 one byte too small; each with and without timing.
Fenced executions must refuse such outputs. With arguments in buffers only fully specified outputs run, without timing.
An endless loop must be ended. A quant8 model of one operation also runs as its signed twin.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import CheckFailed, Judge, Result, Skipped, judged
from tools.conformance.outputs import check_outputs, check_shapes, check_timing
from tools.conformance.paths import PATHS, Path, chosen, judge_steps
from tools.conformance.registry import per_vector, result_of
from tools.conformance.request import requesting, too_small
from tools.conformance.subject import Subject
from tools.conformance.target import BOTH_PREPARATIONS, Executed, Preparing, Run, Target
from tools.conformance.twin import signed_twin
from tools.conformance.vectors import Case

SUITE = "generated"

LOOP_TIMEOUT_NS = 1_000_000
"""What an endless loop is given."""

_NO_DYNAMIC_SHAPE = frozenset({"RANK", "IF", "WHILE"})


@per_vector(SUITE)
def generated(target: Target, case: Case) -> Iterator[Result]:
    """One result for each path, and one for the signed twin."""
    if case.expect_failure and not case.is_endless_loop:
        yield judged(result_of(case, SUITE, "SYNC"), "VALREQ-11", lambda judge: _must_fail(target, case, judge))
        return
    trial = Trial(target, case)
    try:
        for code, path in chosen(target.paths, built_in=case.is_built_in).items():
            if path.buffers and case.expect_failure:
                continue
            result = result_of(case, SUITE, code)
            yield judged(result, path.check, lambda judge, path=path: trial.run(path, judge))  # type: ignore[misc]
            trial.tell_backends(result)
        twin = signed_twin(case)
        if twin is not None:
            yield judged(result_of(twin, SUITE, "SYNC"), "GEN-35", lambda judge: _coupling(trial, twin, judge))
    finally:
        trial.close()


Verdict = Callable[[Judge, Executed], None]
"""Judges an execution."""


class Trial(Subject):
    """All kinds of one case on one device."""

    def run(self, path: Path, judge: Judge) -> None:
        """All kinds of the case on one path, on models of both preparations."""
        with requesting(self.target, self.case) as request:
            for how in BOTH_PREPARATIONS:
                with _counted_against(how):
                    self._run_on(how, path, judge, request)

    def _run_on(self, how: Preparing, path: Path, judge: Judge, request: types_pb2.Request) -> None:
        model = self.prepared(judge, how)
        if self.case.is_endless_loop:
            self._each_timing(path, judge, model, request, self._endless_loop, LOOP_TIMEOUT_NS)
            return
        self.fully_specified(path, judge, model, request)
        if not path.buffers and not _NO_DYNAMIC_SHAPE & set(self.case.operations):
            self._dynamic_shape(path, judge, self.prepared(judge, how, unspecified=True), request)

    def fully_specified(self, path: Path, judge: Judge, model: bytes, request: types_pb2.Request) -> None:
        """The kinds GENERAL, FENCED_COMPUTE and MEMORY_DOMAIN."""
        refused = path.fenced and any(output.array.size == 0 for output in self.case.outputs)  # X9
        verdict = _refused("GEN-16", "a zero-sized output") if refused else self._fully_specified
        self._each_timing(path, judge, model, request, verdict)
        if path.buffers:
            judge.checks["GEN-31"] = None

    def _dynamic_shape(self, path: Path, judge: Judge, model: bytes, request: types_pb2.Request) -> None:
        unspecified: Verdict = self._unspecified
        insufficient: Verdict = self._insufficient
        if path.fenced:
            unspecified = _refused("GEN-22", "outputs of unspecified dimensions")
            insufficient = _refused("GEN-27", "output 0 one byte too small")
        self._each_timing(path, judge, model, request, unspecified)
        if self.case.outputs[0].array.nbytes > 1:  # X8
            self._each_timing(path, judge, model, too_small(request), insufficient)

    def _each_timing(
        self,
        path: Path,
        judge: Judge,
        model: bytes,
        request: types_pb2.Request,
        verdict: Verdict,
        loop_timeout_ns: int | None = None,
    ) -> None:
        for measure in (False,) if path.buffers else (False, True):
            # what waits for a loop that is ended would be refused with it
            run = Run(measure, loop_timeout_ns=loop_timeout_ns, keep=True, chain=loop_timeout_ns is None)
            executed = path(self.target, model, request, run)
            judge.checks[path.check] = None
            if executed.before is not None:
                _judge_one(judge, executed.before, measure, verdict)
            with _second_of(executed):
                _judge_one(judge, executed, measure, verdict)
            if executed.before is not None:
                judge.checks["GEN-19"] = None

    def _fully_specified(self, judge: Judge, executed: Executed) -> None:
        what = "outputs fully specified"
        judge.expect("GEN-14", executed.answer.status == ErrorStatus.NONE, what, "NONE", executed.answer)
        count = len(executed.shapes)
        judge.expect("GEN-15", count in (0, len(self.case.outputs)), what, "no shapes or one per output", count)
        check_shapes(judge, self.case, executed)
        check_outputs(judge, self.case, executed)

    def _unspecified(self, judge: Judge, executed: Executed) -> None:
        what = "outputs of unspecified dimensions"
        _allow_general_failure(executed)
        judge.expect("GEN-20", executed.answer.status == ErrorStatus.NONE, what, "NONE", executed.answer)
        count = len(executed.shapes)
        judge.expect("GEN-21", count == len(self.case.outputs), what, "one shape per output", count)
        check_shapes(judge, self.case, executed)
        check_outputs(judge, self.case, executed)

    def _insufficient(self, judge: Judge, executed: Executed) -> None:
        what = "output 0 one byte too small"
        _allow_general_failure(executed)
        is_result = executed.answer.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        judge.expect("GEN-23", is_result, what, "OUTPUT_INSUFFICIENT_SIZE", executed.answer)
        count = len(executed.shapes)
        judge.expect("GEN-24", count == len(self.case.outputs), what, "one shape per output", count)
        for i, (shape, expected) in enumerate(zip(executed.shapes, self.case.outputs, strict=True)):
            sufficient = shape.is_sufficient
            judge.expect("GEN-25", sufficient == (i > 0), f"isSufficient of output {i}", str(i > 0), sufficient)
            wanted, got = list(expected.array.shape), list(shape.dimensions)
            fits = len(wanted) == len(got) and all(g in (0, w) for w, g in zip(wanted, got, strict=True))
            judge.expect("GEN-26", fits, f"dimensions of output {i}", str(wanted), got)

    def _endless_loop(self, judge: Judge, executed: Executed) -> None:
        _allow_general_failure(executed)
        missed = executed.answer.is_missed_deadline
        judge.expect("GEN-33", missed, "an endless loop with 1 ms", "MISSED_DEADLINE_*", executed.answer)


def _judge_one(judge: Judge, executed: Executed, measure: bool, verdict: Verdict) -> None:
    judge_steps(judge, executed)
    check_timing(judge, executed, measure)
    verdict(judge, executed)


def _refused(check: str, what: str) -> Verdict:
    """A fenced execution is refused with INVALID_ARGUMENT."""

    def verdict(judge: Judge, executed: Executed) -> None:
        if check != "GEN-16":
            _allow_general_failure(executed)
        refused = executed.answer.status == ErrorStatus.INVALID_ARGUMENT
        judge.expect(check, refused, f"a fenced execution, {what}", "INVALID_ARGUMENT", executed.answer)

    return verdict


@contextmanager
def _second_of(executed: Executed) -> Iterator[None]:
    """GEN-19: what fails in the second run of a reusable execution counts against that, too."""
    try:
        yield
    except CheckFailed as failed:
        if executed.before is None:
            raise
        stimulus, also = f"{failed.stimulus} (second run)", {*failed.also, "GEN-19"}
        raise CheckFailed(failed.check, stimulus, failed.expected, failed.got, tuple(sorted(also))) from None


@contextmanager
def _counted_against(how: Preparing) -> Iterator[None]:
    """GEN-02: what fails on a model of prepareModelWithConfig counts against that call, too."""
    try:
        yield
    except CheckFailed as failed:
        if not how.with_config:
            raise
        stimulus, also = f"{failed.stimulus} ({how.call})", {*failed.also, "GEN-02"}
        raise CheckFailed(failed.check, stimulus, failed.expected, failed.got, tuple(sorted(also))) from None


def _allow_general_failure(executed: Executed) -> None:
    if executed.answer.status == ErrorStatus.GENERAL_FAILURE:
        raise Skipped("X2", f"dynamic output shapes are not supported: {executed.answer}")


def _coupling(original: Trial, twin: Case, judge: Judge) -> None:
    """GEN-34 and GEN-35. The original has just run on its own, with the same configurations."""
    target = original.target
    trial = Trial(target, twin)
    try:
        skipped = [_is_skipped(one, judge) for one in (original, trial)]
        agree = skipped[0] == skipped[1]
        judge.expect("GEN-34", agree, "a quant8 model and its signed twin", "both supported or both not", skipped)
        if all(skipped):
            raise Skipped("X1", "neither the model nor its signed twin is fully supported")
        with requesting(target, twin) as request:
            trial.fully_specified(PATHS["SYNC"], judge, trial.prepared(judge, BOTH_PREPARATIONS[0]), request)
        judge.checks["GEN-35"] = None
    except CheckFailed as failed:
        raise CheckFailed(failed.check, failed.stimulus, failed.expected, failed.got, ("GEN-35",)) from None
    finally:
        trial.close()


def _is_skipped(trial: Trial, judge: Judge) -> bool:
    try:
        trial.prepared(judge, BOTH_PREPARATIONS[0])
    except Skipped:
        return True
    return False


def _must_fail(target: Target, case: Case, judge: Judge) -> None:
    """Building, preparing or executing must fail; a driver may accept the model (as the NDK tests have it)."""
    model = target.own_pools(case.model())
    prepared = target.prepare(model)
    if not prepared.model:
        judge.checks["VALREQ-11"] = None
        return
    with requesting(target, case) as request:
        executed = target.execute(prepared.model, request)
    target.release(prepared.model)
    failed = executed.answer.status != ErrorStatus.NONE
    judge.expect("VALREQ-11", failed, "an execution that must fail", "an error", executed.answer)
