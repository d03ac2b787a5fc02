"""Suite `host` (HOST): what a service does with plug-ins, however they behave.

The checks start services with the harness's own plug-in, the witness, in place of the device under test.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import isfinite

import numpy as np

from nnhal.types import DeviceType, ErrorStatus, OperandLifeTime, OperandType
from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.calls import collect_preparation
from nnhal_tools.conformance.device.options import DEFAULT_RUN, PreparationOptions, RunOptions
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.hosting.service import EXTENSION, ID, HostedWitness, hosted_witness
from nnhal_tools.conformance.paths import CALLS, reachable_calls
from nnhal_tools.conformance.paths.buffers import allocate, buffer_role, copy_from, copy_to, move_to_buffer
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.device import expect_well_formed
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.requests import inline_request

SOON_S = 10.0
"""Time in which an answer must come that a correct device gives at once."""
SHORT_NS = 50_000_000
POLL_S = 0.01

PREPARATIONS = 4
"""More than the threads that a device prepares on, so that it answers the last one only if none of them is lost."""

CONFIGURED = ("SYNC-C", "SYNC-R", "BURST-C", "BURST-C-STREAM", "FENCED-C", "FENCED-R")
"""Paths of the calls that take a configuration."""

ROW = np.array([1, -2, 3], np.float32)
PREFIX = 5


def chain(*operations: str) -> types_pb2.Model:
    """Return a model of operations on three floats, one after the other."""
    graph = CaseGraph()
    further_inputs = {"ADD": [graph.constant("TENSOR_FLOAT32", ROW), graph.int32(0)]} if "ADD" in operations else {}
    graph.chain("TENSOR_FLOAT32", (3,), [(operation, further_inputs.get(operation, [])) for operation in operations])
    return make_case("chain", graph, [ROW], [ROW]).model()


def extension_model(constant: bytes | None = None) -> types_pb2.Model:
    """Return a model that copies a tensor of the witness's operand type: its input, or a constant."""
    model = types_pb2.Model()
    model.extension_name_to_prefix.add(name=EXTENSION, prefix=PREFIX)
    source = OperandLifeTime.SUBGRAPH_INPUT if constant is None else OperandLifeTime.CONSTANT_COPY
    for lifetime in (source, OperandLifeTime.SUBGRAPH_OUTPUT):
        model.main.operands.add(type=PREFIX << 16 | 1, dimensions=[3], lifetime=int(lifetime))
    model.main.operations.add(type=PREFIX << 16, inputs=[0], outputs=[1])
    model.main.output_indexes.append(1)
    if constant is None:
        model.main.input_indexes.append(0)
    else:
        model.operand_values = constant
        model.main.operands[0].location.length = len(constant)
    return model


def _launch(
    session: Target, model: types_pb2.Model, deadline_ns: int | None = None
) -> Iterator[device_pb2.PrepareModelEvent]:
    """Launch a preparation, and return its events. They end with an error if they do not come soon."""
    return session.launch_preparation(model, PreparationOptions(deadline_ns=deadline_ns), timeout=SOON_S)


def _prepare(session: Target, model: types_pb2.Model, deadline_ns: int | None = None) -> PreparationOutcome:
    return collect_preparation(_launch(session, model, deadline_ns))


def _is_soon(condition: Callable[[], bool]) -> bool:
    """Poll a condition. Return False if it does not hold soon."""
    pause = threading.Event()
    return any(condition() or pause.wait(POLL_S) for _ in range(int(SOON_S / POLL_S)))


# ---- Misbehavior ----------------------------------------------------------------------------------------


@check("HOST-01")
def exit_while_compiling(target: Target, recorder: CheckRecorder) -> None:
    """Check that each of several preparations has one callback, with an error."""
    with hosted_witness(target, "compile-exits") as witness:
        for number in range(PREPARATIONS):
            outcome = _prepare(witness.target, chain("ADD"))
            right = len(outcome.callbacks) == 1 and outcome.callback.status != ErrorStatus.NONE and not outcome.model
            stimulus = f"preparation {number + 1} by a backend that exits while it compiles"
            got = f"{outcome.events}, {outcome.callback}"
            recorder.expect(right, stimulus, "one callback, with an error and no model", got)


@check("HOST-02")
def invalid_answers_of_supports(target: Target, recorder: CheckRecorder) -> None:
    """Check that an invalid answer is a no of this backend, and that the next backend is asked."""
    for mode, backends, expected in (("supports-exits", ID, [False]), ("supports-nothing", f"{ID},CpuRef", [True])):
        with hosted_witness(target, mode, backends) as witness:
            answer, supported = witness.target.supported_operations(chain("ADD"))
            right = answer.status == ErrorStatus.NONE and supported == expected
            stimulus = f"getSupportedOperations of {backends}, {mode}"
            recorder.expect(right, stimulus, str(expected), f"{answer} {supported}")


@check("HOST-03")
def invalid_performance(target: Target, recorder: CheckRecorder) -> None:
    """Check that getCapabilities succeeds, with figures above 0."""
    with hosted_witness(target, "performance-zero", f"{ID},CpuRef") as witness:
        stimulus = "getCapabilities with a backend whose performance is (0, -1)"
        response = recorder.require_response(witness.target.call("Device.GetCapabilities"), stimulus)
        figures = [
            getattr(entry.info, name) for entry in response.operand_performance for name in ("exec_time", "power_usage")
        ]
        right = all(isfinite(figure) and figure > 0 for figure in figures)
        recorder.expect(right, stimulus, "finite figures above 0", figures)


@check("HOST-16")
def performance_of_few_operations(target: Target, recorder: CheckRecorder) -> None:
    """Check that the type of the only operation that a device runs has a performance."""
    with hosted_witness(target) as witness:
        stimulus = "getCapabilities of a device that only adds floats"
        response = recorder.require_response(witness.target.call("Device.GetCapabilities"), stimulus)
        types = [int(entry.type) for entry in response.operand_performance]
        right = int(OperandType.TENSOR_FLOAT32) in types
        recorder.expect(right, stimulus, "the performance of TENSOR_FLOAT32", types)


@check("HOST-04")
def ill_formed_extension(target: Target, recorder: CheckRecorder) -> None:
    """Check that every listed extension is well-formed."""
    with hosted_witness(target, "extension-ill-formed") as witness:
        call = witness.target.call("Device.GetSupportedExtensions")
        response = recorder.require_response(call, "getSupportedExtensions")
        for extension in response.extensions:
            expect_well_formed(recorder, extension)


@check("HOST-11")
def _version_of_an_edited_backend(target: Target, recorder: CheckRecorder) -> None:
    versions = []
    for edit in ("", "# edited"):
        with hosted_witness(target, edit=edit) as witness:
            response = recorder.require_response(witness.target.call("Device.GetVersionString"), "getVersionString")
            versions.append(response.version)
    recorder.expect(len(set(versions)) == 2, "getVersionString of an edited backend", "another", versions)


# ---- Extensions -----------------------------------------------------------------------------------------


@check("HOST-05", "calls")
def extension_in_each_call(target: Target, recorder: CheckRecorder) -> None:
    """Check that each call that executes copies a value of the extension."""
    with hosted_witness(target) as witness:
        model = _prepared_extension(witness.target, recorder)
        for path, execute in reachable_calls(witness.target).items():
            execution = execute(witness.target, model, _row_request(), DEFAULT_RUN)
            right = execution.outcome.status == ErrorStatus.NONE and execution.output_bytes == [ROW.tobytes()]
            got = f"{execution.outcome} {execution.output_bytes}"
            recorder.expect(right, f"{path}, an extension", "the bytes of the input", got)


@check("HOST-05", "buffers")
def extension_in_buffers(target: Target, recorder: CheckRecorder) -> None:
    """Check that a buffer holds a value of the extension."""
    with hosted_witness(target) as witness:
        session = witness.target
        model = _prepared_extension(session, recorder)
        answer, buffer = allocate(session, [model], [buffer_role(0, 0)])
        recorder.expect(buffer is not None, "allocate for an extension type", "a buffer", answer)
        assert buffer is not None
        answer = copy_from(session, buffer, types_pb2.Memory(inline=ROW.tobytes()))
        recorder.expect_status(answer, "copyFrom, an extension type")
        request = _row_request()
        move_to_buffer(request, request.inputs[0], buffer.token)
        execution = session.execute(model, request)
        right = execution.outcome.status == ErrorStatus.NONE and execution.output_bytes == [ROW.tobytes()]
        got = f"{execution.outcome} {execution.output_bytes}"
        recorder.expect(right, "a buffer of an extension type as input", "its bytes", got)
        answer, data = copy_to(session, buffer, ROW.nbytes)
        right = answer.status == ErrorStatus.NONE and data.tobytes() == ROW.tobytes()
        recorder.expect(right, "copyTo, an extension type", "the bytes that were copied in", answer)


def _prepared_extension(session: Target, recorder: CheckRecorder) -> bytes:
    answer, supported = session.supported_operations(extension_model())
    got = f"{answer} {supported}"
    recorder.expect(supported == [True], "getSupportedOperations, an extension", "[True]", got)
    outcome = _prepare(session, extension_model())
    recorder.expect(bool(outcome.model), "prepareModel, an extension", "NONE", outcome.callback)
    return outcome.model


def _row_request() -> types_pb2.Request:
    return inline_request([ROW], [ROW.nbytes])


@check("HOST-12")
def creator_beside_the_plugin(target: Target, recorder: CheckRecorder) -> None:
    """Check that an operation is supported whose creator is in a module beside the file of the plug-in."""
    with hosted_witness(target) as witness:
        answer, supported = witness.target.supported_operations(extension_model())
        stimulus = "getSupportedOperations, an operation of a module beside the plug-in"
        recorder.expect(supported == [True], stimulus, "[True]", f"{answer} {supported}")


@check("HOST-06")
def extension_constant_of_another_size(target: Target, recorder: CheckRecorder) -> None:
    """Check that no operation on a constant of the wrong size is supported or prepared."""
    with hosted_witness(target) as witness:
        for constant in (ROW.tobytes()[:-1], bytes(4)):
            answer, supported = witness.target.supported_operations(extension_model(constant))
            right = answer.status == ErrorStatus.INVALID_ARGUMENT or supported == [False]
            stimulus = f"getSupportedOperations, 3 elements of 4 bytes with a constant of {len(constant)} bytes"
            recorder.expect(right, stimulus, "INVALID_ARGUMENT or [False]", f"{answer} {supported}")
            outcome = _prepare(witness.target, extension_model(constant))
            stimulus = f"prepareModel with a constant of {len(constant)} bytes"
            recorder.expect(not outcome.model, stimulus, "an error and no model", outcome.callback)


# ---- Notices --------------------------------------------------------------------------------------------


@check("HOST-07")
def notices_of_networks(target: Target, recorder: CheckRecorder) -> None:
    """Check the notices of a model of which the backend runs two parts, and of one of which it runs none."""
    with hosted_witness(target, "", f"{ID},CpuRef", "--no-merge-partitions") as witness:
        for operations in (("ADD", "RELU", "ADD"), ("RELU",)):
            _expect_notices(recorder, witness, operations)


def _expect_notices(recorder: CheckRecorder, witness: HostedWitness, operations: Sequence[str]) -> None:
    before = len(witness.trace)
    outcome = _prepare(witness.target, chain(*operations))
    right = outcome.backends.count(ID) == operations.count("ADD")
    stimulus = f"--backends {ID},CpuRef --no-merge-partitions, a model of {', '.join(operations)}"
    recorder.expect(right, stimulus, f"each ADD on {ID}", outcome.backends)
    witness.target.release(outcome.model)
    _is_soon(lambda: any("after-unload-network" in event for event in witness.trace[before:]))
    trace = witness.trace[before:]
    notices = [event for event in trace if "network" in event]
    number = notices[0].rpartition(" ")[2] if notices else ""
    kinds = ("before-load", "after-load", "before-unload", "after-unload")
    expected = [f"{kind}-network {number}" for kind in kinds]
    stimulus = f"notices of a model of {', '.join(operations)}"
    recorder.expect(notices == expected, stimulus, "one of each kind, in order", trace)
    work = [index for index, event in enumerate(trace) if event in ("optimize", "compile")]
    first, last = trace.index(expected[0]), trace.index(expected[1])
    enclosed = all(first < index < last for index in work)
    recorder.expect(enclosed, stimulus, "all work between before-load and after-load", trace)


@check("HOST-10")
def closed_when_the_service_stops(target: Target, recorder: CheckRecorder) -> None:
    """Check that every object that the factory made in the service is closed when it stops."""
    with hosted_witness(target) as witness:
        _prepare(witness.target, chain("ADD"))
        witness.stop()
        trace = witness.trace
        right = 0 < trace.count("factory") == trace.count("close") and trace[-1] == "close"
        recorder.expect(right, "a service that stops", "as many calls of close as of the factory", trace)


# ---- Settings of the operator ---------------------------------------------------------------------------


@check("HOST-13")
def _options_of_the_operator(target: Target, recorder: CheckRecorder) -> None:
    with hosted_witness(target, "", ID, "--backend-option", f"{ID}.color=blue") as witness:
        right = "option color=blue" in witness.trace
        recorder.expect(right, f"--backend-option {ID}.color=blue", "color=blue at the factory", witness.trace)


@check("HOST-14")
def _type_of_the_hardware(target: Target, recorder: CheckRecorder) -> None:
    for options, expected in (
        (("--device", "first"), DeviceType.GPU),
        (("--device", "first", "--device-type", "first=ACCELERATOR"), DeviceType.ACCELERATOR),
    ):
        with hosted_witness(target, "", ID, *options) as witness:
            answer, response = witness.target.call("Device.GetType")
            got = int(response.type) if response else answer
            stimulus = f"getType of a device with a backend for a GPU, {' '.join(options)}"
            recorder.expect(got == expected, stimulus, expected.name, got)


@check("HOST-15")
def allocator_of_the_operator(target: Target, recorder: CheckRecorder) -> None:
    """Check that a backend is offered the allocator that the operator has set, and none by default."""
    for options, expected in (((), 0), (("--allocator", "huge-pages"), 1)):
        with hosted_witness(target, "", ID, *options) as witness:
            outcome = _prepare(witness.target, chain("ADD"))
            recorder.expect(bool(outcome.model), "prepareModel", "NONE", outcome.callback)
            count = witness.trace.count("use-allocator")
            stimulus = f"a service with {' '.join(options) or 'no allocator'}"
            recorder.expect(count == expected, stimulus, f"{expected} calls of use_allocator", count)


# ---- Memory of a backend --------------------------------------------------------------------------------


@check("HOST-17")
def _memory_of_the_backend(target: Target, recorder: CheckRecorder) -> None:
    with hosted_witness(target, "own-memory") as witness:
        outcome = _prepare(witness.target, chain("ADD"))
        recorder.expect(bool(outcome.model), "prepareModel", "NONE", outcome.callback)
        for path, execute in reachable_calls(witness.target).items():
            before = len(witness.trace)
            execution = execute(witness.target, outcome.model, _row_request(), DEFAULT_RUN)
            right = execution.outcome.status == ErrorStatus.NONE and execution.output_bytes == [(ROW + ROW).tobytes()]
            recorder.expect(right, path, f"{ROW + ROW}", f"{execution.outcome} {execution.output_bytes}")
            events = witness.trace[before:]
            runs = events.count("wait")
            stimulus = f"{path}, work of a backend with memory of its own"
            recorder.expect(runs > 0, stimulus, "an end of each execution after a wait", events)
            copies = events.count("copy")
            recorder.expect(copies == 2 * runs, stimulus, "a copy in and a copy out of each", events)


@check("HOST-18")
def _memory_manager_for_workloads(target: Target, recorder: CheckRecorder) -> None:
    with hosted_witness(target, "planned-memory") as witness:
        outcome = _prepare(witness.target, chain("ADD"))
        execution = witness.target.execute(outcome.model, _row_request())
        recorder.expect_status(execution.outcome, "SYNC")
        wanted = ["memory-manager", "compile", "workload-factory with the manager"]
        events = [event for event in witness.trace if event in wanted]
        recorder.expect(events == wanted, "prepareModel, planned memory", str(wanted), witness.trace)


# ---- Profiles -------------------------------------------------------------------------------------------


@check("HOST-19")
def profiling_context_of_each_call(target: Target, recorder: CheckRecorder) -> None:
    """Check that each call with a configuration tells the context of a backend when it begins and ends, if profiled."""
    with hosted_witness(target) as witness:
        outcome = _prepare(witness.target, chain("ADD"))
        for path in CONFIGURED:
            for profile in (False, True):
                before = len(witness.trace)
                run = RunOptions(hints=types_pb2.ExecutionConfig(profile=profile))
                answer = CALLS[path](witness.target, outcome.model, _row_request(), run).outcome
                recorder.expect_status(answer, path)
                _is_soon(lambda before=before: _are_ended(witness.trace[before:]))  # type: ignore[misc]
                events = witness.trace[before:]
                right = _are_ended(events) and profile == any("profile" in event for event in events)
                expected = "a begin and an end of each profiled execution, and no others"
                recorder.expect(right, f"{path}, profile: {profile}", expected, events)


def _are_ended(events: Sequence[str]) -> bool:
    """Return whether each profile that began has ended, and no number occurs twice."""
    begun, ended = (
        sorted(event.rpartition(" ")[2] for event in events if event.startswith(kind))
        for kind in ("profile-begin", "profile-end")
    )
    return begun == ended and len(set(begun)) == len(begun)


# ---- Time -----------------------------------------------------------------------------------------------


@check("HOST-08")
def deadline_and_cancellation_while_compiling(target: Target, recorder: CheckRecorder) -> None:
    """Check that a backend that checks its options while it compiles ends at the deadline, and when it is cancelled."""
    with hosted_witness(target, "compile-checks") as witness:
        outcome = _prepare(witness.target, chain("ADD"), SHORT_NS)
        missed = outcome.callback.is_missed_deadline and not outcome.model
        stimulus = "a deadline that passes while a backend compiles"
        recorder.expect(missed, stimulus, "MISSED_DEADLINE_* and no model", outcome.callback)
        stream = _launch(witness.target, chain("ADD"))
        _is_soon(lambda: witness.trace.count("compile") == 2)
        stream.cancel()  # type: ignore[attr-defined]
        ended = _is_soon(lambda: witness.trace.count("compile ends") == 2)
        stimulus = "a preparation that is cancelled while a backend compiles"
        recorder.expect(ended, stimulus, "the end of the compilation", witness.trace)


@check("HOST-09")
def deadline_in_the_queue(target: Target, recorder: CheckRecorder) -> None:
    """Check that a preparation behind others that block is reported at its deadline, as transient."""
    with hosted_witness(target, "compile-blocks") as witness, _blocked(witness):
        outcome = _prepare(witness.target, chain("ADD", "ADD"), SHORT_NS)
    right = outcome.callback.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT and not outcome.model
    stimulus = "a deadline that passes while other preparations block the device"
    recorder.expect(right, stimulus, "MISSED_DEADLINE_TRANSIENT, while they still run", outcome.callback)


@contextmanager
def _blocked(witness: HostedWitness) -> Iterator[None]:
    """Block all threads that prepare models."""
    with ThreadPoolExecutor(PREPARATIONS) as threads:
        blocked = [threads.submit(_prepare, witness.target, chain("ADD")) for _ in range(PREPARATIONS)]
        try:
            _is_soon(lambda: "waits for go" in witness.trace)
            yield
        finally:
            witness.let("go")
            for preparation in blocked:
                preparation.result()
