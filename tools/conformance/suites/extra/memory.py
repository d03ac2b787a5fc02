"""Memory and lifetimes: what is written and what is not, and what may be released when (EXTRA-18, -19)."""

import threading
import time

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import Judge
from tools.conformance.paths import calls
from tools.conformance.registry import check
from tools.conformance.request import build, too_small
from tools.conformance.samples import expect_right, named, prepared, request_of, taken
from tools.conformance.target import Run, Target, mapped

SENTINEL = 0xA5
GUARD = 64
"""Bytes before the first region and after the last that belong to nobody."""

HEAD_START_S = 0.1
"""An execution is under way after this, as a rule; where it is not, the check is only weaker."""

VECTORS = ("split_int32", "add_float", "concatenation_int8", "topk_float")


class _Placed:
    """A request whose pools are Memory objects with guards around the regions."""

    def __init__(self, target: Target, name: str) -> None:
        case = named(name)
        self.request, data = build(case.inputs, [output.array.nbytes for output in case.outputs])
        self.inputs = bytes([SENTINEL]) * GUARD + data + bytes([SENTINEL]) * GUARD
        end = self.request.pools[1].returned.size
        self.outputs = bytes([SENTINEL]) * (GUARD + end + GUARD)
        for argument in (*self.request.inputs, *self.request.outputs):
            if not argument.has_no_value:
                argument.location.offset += GUARD
        self.handles = target.filled(self.inputs), target.filled(self.outputs)
        for pool, handle in zip(self.request.pools, self.handles, strict=True):
            pool.pool.CopyFrom(mapped(handle))

    def stray(self, written: bytes, request: types_pb2.Request) -> int | None:
        """The first byte of the output memory that was written and lies in no region; None where there is none."""
        regions = [range(o.location.offset, o.location.offset + o.location.length) for o in request.outputs]
        for i, byte in enumerate(written):
            if byte != SENTINEL and not any(i in region for region in regions):
                return i
        return None


def _expect_only_regions(target: Target, judge: Judge, placed: _Placed, request: types_pb2.Request, what: str) -> None:
    inputs, outputs = (target.read(handle) for handle in placed.handles)
    judge.expect("EXTRA-18", inputs == placed.inputs, f"{what}: the memory of the inputs", "unchanged", "changed")
    stray = placed.stray(outputs, request)
    expected = "bytes outside the regions unchanged"
    judge.expect("EXTRA-18", stray is None, f"{what}: the memory of the outputs", expected, f"byte {stray} written")


@check("EXTRA-18", "after success")
def only_regions_are_written(target: Target, judge: Judge) -> None:
    """Outputs fill their regions; inputs, padding and guards stay."""
    for name in VECTORS:
        for path, execute in calls(target).items():
            with prepared(target, name) as model:
                placed = _Placed(target, name)
                answer = execute(target, model, placed.request, Run()).answer
                what = f"{path} of {name}"
                judge.expect("EXTRA-18", answer.status == ErrorStatus.NONE, what, "NONE", answer)
                _expect_only_regions(target, judge, placed, placed.request, what)
                outputs = target.read(placed.handles[1])
                for argument, output in zip(placed.request.outputs, named(name).outputs, strict=True):
                    start = argument.location.offset
                    got = outputs[start : start + output.array.nbytes]
                    right = got == output.array.tobytes()
                    judge.expect(
                        "EXTRA-18", right, f"{what}: an output in a Memory object", "the vector's", "other bytes"
                    )
                target.release(*placed.handles)


@check("EXTRA-18", "where output 0 is too small")
def padding_is_not_used(target: Target, judge: Judge) -> None:
    """Padding must not make an output fit."""
    for name in VECTORS:
        with prepared(target, name, unspecified=True) as model:
            placed = _Placed(target, name)
            short = too_small(placed.request)
            answer = target.execute(model, short).answer
            what = f"{name}, output 0 a byte too small"
            fine = (ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, ErrorStatus.GENERAL_FAILURE)  # X2
            judge.expect("EXTRA-18", answer.status in fine, what, "OUTPUT_INSUFFICIENT_SIZE", answer)
            _expect_only_regions(target, judge, placed, short, what)
            target.release(*placed.handles)


@check("EXTRA-19", "pools of a model")
def pools_of_a_model(target: Target, judge: Judge) -> None:
    """A prepared model holds its constants itself."""
    model = taken(target, named("network")).model()
    handle = target.filled(model.pools[0].inline)
    model.pools[0].CopyFrom(mapped(handle))
    outcome = target.prepare(model)
    judge.expect("EXTRA-19", bool(outcome.model), "prepareModel with a mapped pool", "NONE", outcome.callback)
    target.release(handle)
    executed = target.execute(outcome.model, request_of("network"))
    expect_right(judge, "EXTRA-19", "network", executed, "after the model's pool was released")
    target.release(outcome.model)


@check("EXTRA-19", "a prepared model during its execution")
def prepared_model_during_execution(target: Target, judge: Judge) -> None:
    """The execution goes on to its end."""
    answers = []

    def work() -> None:
        run = Run(loop_timeout_ns=300_000_000)
        answers.append(target.execute(model, request_of("while_without_end"), run).answer)

    with prepared(target, "while_without_end") as model:
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(HEAD_START_S)
        target.release(model)
        thread.join()
    # the release may also have come first: then there is no such model
    fine = answers[0].is_missed_deadline or answers[0].status == ErrorStatus.INVALID_ARGUMENT
    judge.expect("EXTRA-19", fine, "releasing a model that executes", "the loop's end by its timeout", answers[0])


@check("EXTRA-19", "outputs after their model")
def outputs_after_their_model(target: Target, judge: Judge) -> None:
    """What an execution wrote stays when the model and the input are gone."""
    placed = _Placed(target, "add_float")
    with prepared(target, "add_float") as model:
        answer = target.execute(model, placed.request).answer
        judge.expect("EXTRA-19", answer.status == ErrorStatus.NONE, "SYNC", "NONE", answer)
    target.release(placed.handles[0])
    start = placed.request.outputs[0].location.offset
    expected = named("add_float").outputs[0].array.tobytes()
    got = target.read(placed.handles[1], start, len(expected))
    judge.expect("EXTRA-19", got == expected, "outputs after their model was released", "unchanged", "other bytes")
    target.release(placed.handles[1])
