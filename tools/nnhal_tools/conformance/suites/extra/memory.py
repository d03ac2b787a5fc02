"""Memory and lifetimes: bytes that executions may write, and objects that may be released early (EXTRA-18, -19)."""

import time
from concurrent.futures import ThreadPoolExecutor

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.paths import reachable_calls
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.requests import build_request, with_small_output
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_request,
    expect_correct,
    prepared_model,
    supported_model,
)

SENTINEL = 0xA5
GUARD_BYTES = 64
"""Unused bytes before the first region and after the last one."""

START_DELAY_S = 0.1
"""Delay after which an execution has usually started. If it has not, the check is only weaker."""

VECTORS = ("split_int32", "add_float", "concatenation_int8", "topk_float")


class _GuardedRequest:
    """Request whose pools are Memory objects with guard bytes around the regions."""

    def __init__(self, target: Target, name: str) -> None:
        case = builtin_case(name)
        self.request, data = build_request(case.inputs, [output.array.nbytes for output in case.outputs])
        self.inputs = bytes([SENTINEL]) * GUARD_BYTES + data + bytes([SENTINEL]) * GUARD_BYTES
        end = self.request.pools[1].returned.size
        self.outputs = bytes([SENTINEL]) * (GUARD_BYTES + end + GUARD_BYTES)
        for argument in (*self.request.inputs, *self.request.outputs):
            if not argument.has_no_value:
                argument.location.offset += GUARD_BYTES
        self.handles = target.memory_with(self.inputs), target.memory_with(self.outputs)
        for pool, handle in zip(self.request.pools, self.handles, strict=True):
            pool.pool.CopyFrom(mapped_pool(handle))

    def first_stray_byte(self, written: bytes, request: types_pb2.Request) -> int | None:
        """Return the index of the first byte that was written outside the output regions, or None."""
        regions = [range(o.location.offset, o.location.offset + o.location.length) for o in request.outputs]
        for i, byte in enumerate(written):
            if byte != SENTINEL and not any(i in region for region in regions):
                return i
        return None


def _expect_only_regions(
    target: Target, recorder: CheckRecorder, guarded: _GuardedRequest, request: types_pb2.Request, situation: str
) -> None:
    inputs, outputs = (target.read_memory(handle) for handle in guarded.handles)
    recorder.expect(inputs == guarded.inputs, f"{situation}: the memory of the inputs", "unchanged", "changed")
    stray = guarded.first_stray_byte(outputs, request)
    expected = "bytes outside the regions unchanged"
    recorder.expect(stray is None, f"{situation}: the memory of the outputs", expected, f"byte {stray} written")


@check("EXTRA-18", "after success")
def only_regions_are_written(target: Target, recorder: CheckRecorder) -> None:
    """Check that outputs fill their regions, and that inputs, padding and guard bytes are unchanged."""
    for name in VECTORS:
        for path, execute in reachable_calls(target).items():
            with prepared_model(target, name) as model:
                guarded = _GuardedRequest(target, name)
                answer = execute(target, model, guarded.request, RunOptions()).outcome
                situation = f"{path} of {name}"
                recorder.expect_status(answer, situation)
                _expect_only_regions(target, recorder, guarded, guarded.request, situation)
                outputs = target.read_memory(guarded.handles[1])
                for argument, output in zip(guarded.request.outputs, builtin_case(name).outputs, strict=True):
                    start = argument.location.offset
                    got = outputs[start : start + output.array.nbytes]
                    right = got == output.array.tobytes()
                    recorder.expect(
                        right, f"{situation}: an output in a Memory object", "the vector's bytes", "other bytes"
                    )
                target.release(*guarded.handles)


@check("EXTRA-18", "output 0 too small")
def padding_is_not_used(target: Target, recorder: CheckRecorder) -> None:
    """Check that an output does not use its padding to fit."""
    for name in VECTORS:
        with prepared_model(target, name, unspecified=True) as model:
            guarded = _GuardedRequest(target, name)
            short = with_small_output(guarded.request)
            answer = target.execute(model, short).outcome
            situation = f"{name}, output 0 one byte too small"
            allowed = (ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, ErrorStatus.GENERAL_FAILURE)  # X2
            recorder.expect(answer.status in allowed, situation, "OUTPUT_INSUFFICIENT_SIZE", answer)
            _expect_only_regions(target, recorder, guarded, short, situation)
            target.release(*guarded.handles)


@check("EXTRA-19", "pools of a model")
def pools_of_a_model(target: Target, recorder: CheckRecorder) -> None:
    """Check that a prepared model does not need the memory of its constants."""
    model = supported_model(target, builtin_case("network"))
    handle = target.memory_with(model.pools[0].inline)
    model.pools[0].CopyFrom(mapped_pool(handle))
    outcome = target.prepare(model)
    recorder.expect(bool(outcome.model), "prepareModel with a mapped pool", "NONE", outcome.callback)
    target.release(handle)
    execution = target.execute(outcome.model, builtin_request("network"))
    expect_correct(recorder, "network", execution, "after the model's pool was released")
    target.release(outcome.model)


@check("EXTRA-19", "a prepared model during its execution")
def prepared_model_during_execution(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution continues after the release of its model."""
    run = RunOptions(loop_timeout_ns=300_000_000)
    with prepared_model(target, "while_without_end") as model, ThreadPoolExecutor(1) as thread:
        running = thread.submit(target.execute, model, builtin_request("while_without_end"), run)
        time.sleep(START_DELAY_S)
        target.release(model)
        answer = running.result().outcome
    # If the release arrives first, the model is unknown.
    ended = answer.is_missed_deadline or answer.status == ErrorStatus.INVALID_ARGUMENT
    recorder.expect(ended, "releasing a model that executes", "a loop timeout", answer)


@check("EXTRA-19", "outputs after their model")
def outputs_after_their_model(target: Target, recorder: CheckRecorder) -> None:
    """Check that outputs remain after the release of the model and the inputs."""
    guarded = _GuardedRequest(target, "add_float")
    with prepared_model(target, "add_float") as model:
        answer = target.execute(model, guarded.request).outcome
        recorder.expect_status(answer, "SYNC")
    target.release(guarded.handles[0])
    start = guarded.request.outputs[0].location.offset
    expected = builtin_case("add_float").outputs[0].array.tobytes()
    got = target.read_memory(guarded.handles[1], start, len(expected))
    recorder.expect(got == expected, "outputs after their model was released", "unchanged", "other bytes")
    target.release(guarded.handles[1])
