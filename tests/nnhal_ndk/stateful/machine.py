"""Calls of the C library in random order: valid and invalid ones, with living, freed, foreign and null handles."""

import ctypes
import os
from collections.abc import Callable
from typing import Any, ClassVar, TextIO, cast

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.api.functions import FUNCTIONS, Function
from nnhal_ndk.objects import OBJECTS
from nnhal_tools.conformance.device.ndk_library import (
    NdkLibrary,
    handles,
    operand_type,
    quant_params,
    short_name,
    uint32s,
)
from tests.nnhal_ndk.stateful.states import (
    BAD_DATA,
    BAD_STATE,
    OK,
    TYPES,
    Codes,
    CompilationState,
    DescState,
    ExecutionState,
    MemoryState,
    ModelState,
    Phase,
    Shape,
    TypeCase,
    value_bytes,
)

FILE_BYTES = 96
ROOM = 4096
NULL = frozenset({ResultCode.UNEXPECTED_NULL})
FIXED, DYNAMIC = (2, 3), (0, 3)
MISUSED = [each for each in FUNCTIONS if each.parameters and each.name not in ("ANeuralNetworks_getDeviceCount",)]

operand_indexes = st.integers(-1, 7)
some_indexes = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)
shapes = st.sampled_from([None, None, FIXED, (1, 3), DYNAMIC, (6,), (3, 2)])
lengths = st.sampled_from([24, 24, 24, 12, 25, 48, 0])
flags = st.booleans()


class NdkMachine(RuleBasedStateMachine):
    """Program with several objects of each kind.

    Attributes:
        library, trace: set by the process that runs the machine: the library, and a file for the calls of a sequence.
    """

    library: ClassVar[NdkLibrary]
    trace: ClassVar[TextIO]

    models = Bundle("models")
    compilations = Bundle("compilations")
    memories = Bundle("memories")
    descs = Bundle("descs")
    executions = Bundle("executions")
    events = Bundle("events")
    bursts = Bundle("bursts")

    @initialize()
    def begin(self) -> None:
        self.trace.seek(0)
        self.trace.truncate()
        self.devices = [self.library.create("getDevice", index) for index in (0, 1)]
        self.living = len(OBJECTS)
        self.created: list[tuple[str, int]] = []
        self.started: list[tuple[int, ExecutionState, Codes]] = []
        self.freed = [0x1230]
        self.kept: list[Any] = []
        self.outputs: dict[ExecutionState, AnyArray] = {}
        self.file = os.memfd_create("stateful")
        os.ftruncate(self.file, FILE_BYTES)

    # ---- Calls --------------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any) -> ResultCode:
        """Call a function, after writing the call to the trace."""
        self.trace.write(f"{name}({', '.join(map(_describe, arguments))})")
        self.trace.flush()
        code = ResultCode(getattr(self.library, name)(*arguments))
        self.trace.write(f" = {code.name}\n")
        return code

    def expect(self, expected: Codes, name: str, *arguments: Any) -> ResultCode:
        """Call a function and check its result."""
        code = self.call(name, *arguments)
        assert code in expected, f"{name} returned {code.name}, not {' or '.join(each.name for each in expected)}"
        return code

    def create(self, kind: str, expected: Codes, name: str, *arguments: Any) -> int | None:
        """Call a function that creates an object. Return its handle, or None if it failed as expected."""
        handle = ctypes.c_void_p(1)
        code = self.expect(expected, name, *arguments, ctypes.byref(handle))
        assert (handle.value is not None) == (code == ResultCode.NO_ERROR)
        if handle.value is not None:
            self.created.append((kind, handle.value))
        return handle.value

    def free(self, kind: str, handle: int) -> None:
        """Free an object. Later calls use its handle nevertheless."""
        self.trace.write(f"{kind}_free({handle:#x})\n")
        getattr(self.library, f"{kind}_free")(handle)
        self.freed.append(handle)

    def teardown(self) -> None:
        """Free everything, and check that nothing is left."""
        if not hasattr(self, "file"):
            return
        for kind, handle in sorted(self.created, key=lambda each: each[0] != "Event"):  # events first: they wait
            getattr(self.library, f"{kind}_free")(handle)
        os.close(self.file)
        assert len(OBJECTS) == self.living, "objects were left behind"

    # ---- Models -------------------------------------------------------------------------------------

    @rule(target=models)
    def create_model(self) -> ModelState:
        handle = self.create("Model", OK, "Model_create")
        assert handle is not None
        return ModelState(handle)

    @rule(target=models, shape=st.sampled_from([FIXED, FIXED, DYNAMIC]), reverse=flags)
    def build_model(self, shape: Shape, reverse: bool) -> ModelState:
        """Build a model that can be computed: ADD of operands 0 and 1 to operand 3."""
        model: ModelState = cast(Any, self.create_model())
        tensor = TypeCase(OperandType.TENSOR_FLOAT32, shape)
        for each in (tensor, tensor, TypeCase(OperandType.INT32), tensor):
            self.add_operand(model, each)
        steps: list[Callable[[], object]] = [
            lambda: self.set_value(model, 2, 4, False),
            lambda: self.add_operation(model, OperationType.ADD, (0, 1, 2), (3,)),
        ]
        for step in reversed(steps) if reverse else steps:
            step()
        self.identify(model, (0, 1), (3,))
        self.finish_model(model)
        assert model.is_finished
        return model

    @rule(model=models, given=st.sampled_from(TYPES))
    def add_operand(self, model: ModelState, given: TypeCase) -> None:
        type_ = operand_type(given.type, given.dimensions, given.scale, given.zero_point)
        self.expect(model.add_operand(given), "Model_addOperand", model.handle, type_)

    @rule(model=models, index=operand_indexes, length=st.sampled_from([4, 4, 24, 5, 0]), is_null=flags)
    def set_value(self, model: ModelState, index: int, length: int, is_null: bool) -> None:
        buffer = None if is_null else bytes(length)
        self.kept.append(buffer)
        size = 0 if is_null else length
        expected = model.set_value(index, size, is_null=is_null)
        self.expect(expected, "Model_setOperandValue", model.handle, index, buffer, size)

    @rule(model=models, index=operand_indexes, memory=memories, offset=st.sampled_from([0, 4, 93]))
    def set_value_from_memory(self, model: ModelState, index: int, memory: MemoryState, offset: int) -> None:
        expected = model.set_value_from_memory(index, memory, offset, 4)
        arguments = (model.handle, index, memory.handle, offset, 4)
        self.expect(expected, "Model_setOperandValueFromMemory", *arguments)

    @rule(model=models, index=operand_indexes, value=models)
    def set_value_from_model(self, model: ModelState, index: int, value: ModelState) -> None:
        expected = model.set_value_from_model(index, value)
        self.expect(expected, "Model_setOperandValueFromModel", model.handle, index, value.handle)

    @rule(
        model=models,
        index=operand_indexes,
        channel=st.integers(0, 2),
        scales=st.sampled_from([[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, -1.0]]),
    )
    def set_scales(self, model: ModelState, index: int, channel: int, scales: list[float]) -> None:
        expected = model.set_scales(index, channel, scales)
        params = quant_params(channel, scales)
        self.expect(expected, "Model_setOperandSymmPerChannelQuantParams", model.handle, index, params)

    @rule(
        model=models,
        type_=st.sampled_from([OperationType.ADD, OperationType.FLOOR, -1, 0xDEAD]),
        inputs=some_indexes,
        outputs=some_indexes,
    )
    def add_operation(self, model: ModelState, type_: int, inputs: Shape, outputs: Shape) -> None:
        arguments = (len(inputs), uint32s(*inputs), len(outputs), uint32s(*outputs))
        self.expect(model.add_operation(type_, inputs, outputs), "Model_addOperation", model.handle, type_, *arguments)

    @rule(model=models, inputs=some_indexes, outputs=some_indexes)
    def identify(self, model: ModelState, inputs: Shape, outputs: Shape) -> None:
        arguments = (len(inputs), uint32s(*inputs), len(outputs), uint32s(*outputs))
        self.expect(model.identify(inputs, outputs), "Model_identifyInputsAndOutputs", model.handle, *arguments)

    @rule(model=models, allow=flags)
    def relax(self, model: ModelState, allow: bool) -> None:
        self.expect(model.relax(), "Model_relaxComputationFloat32toFloat16", model.handle, allow)

    @rule(model=models)
    def finish_model(self, model: ModelState) -> None:
        self.expect(model.finish(), "Model_finish", model.handle)

    @rule(model=models, count=st.integers(0, 2))
    def query_support(self, model: ModelState, count: int) -> None:
        expected = BAD_DATA if count == 0 else OK if model.is_finished else BAD_STATE
        supported = (ctypes.c_bool * 16)()
        listed = handles(*self.devices)
        name = "Model_getSupportedOperationsForDevices"
        self.expect(expected, name, model.handle, listed, count, supported)

    @rule(model=consumes(models))
    def free_model(self, model: ModelState) -> None:
        self.free("Model", model.handle)

    # ---- Compilations -------------------------------------------------------------------------------

    @rule(target=compilations, model=models, devices=st.sampled_from([None, (0,), (0,), (0, 1), (0, 0), ()]))
    def create_compilation(self, model: ModelState, devices: Shape | None) -> Any:
        expected = OK if model.is_finished else BAD_STATE
        if devices is None:
            handle = self.create("Compilation", expected, "Compilation_create", model.handle)
        else:
            if len(set(devices)) != len(devices) or not devices:
                expected = BAD_DATA
            listed = handles(*(self.devices[index] for index in devices))
            name = "Compilation_createForDevices"
            handle = self.create("Compilation", expected, name, model.handle, listed, len(devices))
        if handle is None:
            return multiple()
        return CompilationState(handle, model, devices is not None and len(devices) == 1)

    @rule(target=compilations, model=models)
    def compile_model(self, model: ModelState) -> Any:
        compilation = self.create_compilation(model, (0,))
        if isinstance(compilation, CompilationState):
            self.finish_compilation(compilation)
        return compilation

    @rule(
        compilation=compilations,
        option=st.sampled_from([("Preference", 1), ("Preference", 3), ("Priority", 90), ("Priority", 1)]),
    )
    def set_option(self, compilation: CompilationState, option: tuple[str, int]) -> None:
        expected = compilation.change(option[1] in (1, 90) and option != ("Priority", 1))
        self.expect(expected, f"Compilation_set{option[0]}", compilation.handle, option[1])

    @rule(compilation=compilations, duration=st.sampled_from([0, 600 * 10**9, 2**64 - 1]))
    def set_compilation_timeout(self, compilation: CompilationState, duration: int) -> None:
        expected = compilation.change(compilation.has_single_device)
        self.expect(expected, "Compilation_setTimeout", compilation.handle, duration)

    @rule(compilation=compilations)
    def set_caching(self, compilation: CompilationState) -> None:
        arguments = (compilation.handle, b"/nnhal-missing-folder", bytes(32))
        self.expect(compilation.change(True), "Compilation_setCaching", *arguments)

    @rule(compilation=compilations)
    def finish_compilation(self, compilation: CompilationState) -> None:
        self.expect(compilation.finish(), "Compilation_finish", compilation.handle)

    @rule(compilation=compilations, what=st.sampled_from(["Alignment", "Padding"]), is_output=flags, index=st.just(9))
    def query_memory(self, compilation: CompilationState, what: str, is_output: bool, index: int) -> None:
        for each in (0, index):
            counts = (len(compilation.model.outputs), len(compilation.model.inputs))
            expected = compilation.query(each, counts[0] if is_output else counts[1])
            name = f"Compilation_getPreferredMemory{what}For{'Output' if is_output else 'Input'}"
            self.expect(expected, name, compilation.handle, each, uint32s(0))

    @rule(compilation=consumes(compilations))
    def free_compilation(self, compilation: CompilationState) -> None:
        self.free("Compilation", compilation.handle)

    @rule(target=bursts, compilation=compilations)
    def create_burst(self, compilation: CompilationState) -> Any:
        handle = self.create("Burst", compilation.needs_finished(), "Burst_create", compilation.handle)
        return multiple() if handle is None else (handle, compilation)

    @rule(burst=consumes(bursts))
    def free_burst(self, burst: tuple[int, CompilationState]) -> None:
        self.free("Burst", burst[0])

    # ---- Memories -----------------------------------------------------------------------------------

    @rule(
        target=memories,
        size=st.sampled_from([24, 48, 96, 0, 97]),
        offset=st.sampled_from([0, 0, 8, 2**40]),
        is_open=st.sampled_from([True, True, True, False]),
    )
    def create_memory(self, size: int, offset: int, is_open: bool) -> Any:
        is_valid = is_open and size > 0 and offset + size <= FILE_BYTES
        arguments = (size, 3, self.file if is_open else -1, offset)
        handle = self.create("Memory", OK if is_valid else BAD_DATA, "Memory_createFromFd", *arguments)
        return multiple() if handle is None else MemoryState(handle, size)

    @rule(target=descs)
    def create_desc(self) -> DescState:
        handle = self.create("MemoryDesc", OK, "MemoryDesc_create")
        assert handle is not None
        return DescState(handle)

    @rule(
        desc=descs,
        compilation=compilations,
        is_output=flags,
        index=st.sampled_from([0, 0, 1, 2]),
        frequency=st.sampled_from([1.0, 0.5, 0.0, 1.5, float("nan")]),
    )
    def add_role(
        self, desc: DescState, compilation: CompilationState, is_output: bool, index: int, frequency: float
    ) -> None:
        if not compilation.is_plain or compilation.shape != FIXED:
            return
        expected = desc.add_role(compilation, index, frequency, is_output=is_output)
        name = f"MemoryDesc_add{'Output' if is_output else 'Input'}Role"
        self.expect(expected, name, desc.handle, compilation.handle, index, frequency)

    @rule(desc=descs, shape=st.sampled_from([FIXED, FIXED, (3, 2), (6,), ()]))
    def set_dimensions(self, desc: DescState, shape: Shape) -> None:
        dimensions = uint32s(*shape) if shape else None
        self.expect(desc.set_dimensions(shape), "MemoryDesc_setDimensions", desc.handle, len(shape), dimensions)

    @rule(desc=descs)
    def finish_desc(self, desc: DescState) -> None:
        self.expect(desc.finish(), "MemoryDesc_finish", desc.handle)

    @rule(target=memories, desc=descs)
    def create_tensor(self, desc: DescState) -> Any:
        expected = OK if desc.is_finished else BAD_STATE
        handle = self.create("Memory", expected, "Memory_createFromDesc", desc.handle)
        if handle is None:
            return multiple()
        size = value_bytes(desc.shape)
        return MemoryState(handle, size, frozenset(desc.roles), is_tensor=True, shape=desc.shape, has_value=False)

    @rule(target=memories, compilation=compilations)
    def create_tensor_for(self, compilation: CompilationState) -> Any:
        """Create a tensor for the first input and the output of a compilation."""
        if not compilation.is_plain or compilation.shape != FIXED or not compilation.is_finished:
            return multiple()
        desc = self.create_desc()
        for is_output in (False, True):
            self.add_role(desc, compilation, is_output, 0, 1.0)
        self.finish_desc(desc)
        memory = self.create_tensor(desc)
        self.free_desc(desc)
        return memory

    @rule(source=memories, destination=memories)
    def copy(self, source: MemoryState, destination: MemoryState) -> None:
        self.expect(source.copy_to(destination), "Memory_copy", source.handle, destination.handle)

    @rule(desc=consumes(descs))
    def free_desc(self, desc: DescState) -> None:
        self.free("MemoryDesc", desc.handle)

    @rule(memory=consumes(memories))
    def free_memory(self, memory: MemoryState) -> None:
        self.free("Memory", memory.handle)

    # ---- Executions ---------------------------------------------------------------------------------

    @rule(target=executions, compilation=compilations)
    def create_execution(self, compilation: CompilationState) -> Any:
        handle = self.create("Execution", compilation.needs_finished(), "Execution_create", compilation.handle)
        is_used = handle is not None and compilation.is_plain
        return ExecutionState(handle, compilation) if handle is not None and is_used else multiple()

    @rule(target=executions, compilation=compilations, is_reusable=flags)
    def create_complete_execution(self, compilation: CompilationState, is_reusable: bool) -> Any:
        execution = self.create_execution(compilation)
        if not isinstance(execution, ExecutionState):
            return multiple()
        if is_reusable:
            self.set_execution_option(execution, "reusable")
        for key in ((False, 0), (False, 1), (True, 0)):
            self.set_buffer(execution, key, FIXED, 24, False)
        return execution

    @rule(execution=executions, option=st.sampled_from(["reusable", "padding", "no padding", "measure", "loop"]))
    def set_execution_option(self, execution: ExecutionState, option: str) -> None:
        handle = execution.handle
        match option:
            case "reusable":
                expected = execution.change()
                execution.is_reusable |= expected == OK
                self.expect(expected, "Execution_setReusable", handle, True)
            case "padding" | "no padding":
                expected = execution.enable_padding(option == "padding")
                self.expect(expected, "Execution_enableInputAndOutputPadding", handle, option == "padding")
            case "measure":
                expected = execution.change(needs_single_device=True)
                execution.measures |= expected == OK
                self.expect(expected, "Execution_setMeasureTiming", handle, True)
            case _:
                self.expect(execution.change(), "Execution_setLoopTimeout", handle, 2**64 - 1)

    @rule(execution=executions, duration=st.sampled_from([0, 600 * 10**9, 2**64 - 1]))
    def set_timeout(self, execution: ExecutionState, duration: int) -> None:
        self.expect(execution.change(needs_single_device=True), "Execution_setTimeout", execution.handle, duration)

    @rule(
        execution=executions,
        key=st.sampled_from([(False, 0), (False, 1), (True, 0), (False, 2), (True, 1), (False, -1)]),
        given=shapes,
        length=lengths,
        is_null=st.sampled_from([False, False, False, True]),
    )
    def set_buffer(
        self, execution: ExecutionState, key: tuple[bool, int], given: Shape | None, length: int, is_null: bool
    ) -> None:
        expected = execution.set_argument(key, given, length, is_null=is_null)
        buffer = np.full(ROOM, 7, np.uint8)
        buffer[:ROOM] = np.full(ROOM // 4, key[1] + 1, np.float32).view(np.uint8)
        self.kept.append(buffer)
        where = (None, 0) if is_null else (buffer.ctypes.data, length)
        type_ = None if given is None else operand_type(OperandType.TENSOR_FLOAT32, given)
        self.expect(expected, f"Execution_set{_side(key)}", execution.handle, key[1], type_, *where)
        if expected == OK and key == (True, 0):
            self.outputs[execution] = buffer

    @rule(
        execution=executions,
        key=st.sampled_from([(False, 0), (False, 1), (True, 0), (True, 1)]),
        given=shapes,
        memory=memories,
        region=st.sampled_from([(0, 0), (0, 24), (24, 24), (80, 24), (2**63, 2**63)]),
    )
    def set_memory(
        self,
        execution: ExecutionState,
        key: tuple[bool, int],
        given: Shape | None,
        memory: MemoryState,
        region: tuple[int, int],
    ) -> None:
        expected = execution.set_argument(key, given, region[1], memory, offset=region[0])
        type_ = None if given is None else operand_type(OperandType.TENSOR_FLOAT32, given)
        arguments = (execution.handle, key[1], type_, memory.handle, *region)
        self.expect(expected, f"Execution_set{_side(key)}FromMemory", *arguments)

    @rule(execution=executions)
    def compute(self, execution: ExecutionState) -> None:
        self._compute(execution, "Execution_compute", execution.handle)

    @rule(execution=executions, burst=bursts)
    def compute_in_burst(self, execution: ExecutionState, burst: tuple[int, CompilationState]) -> None:
        if burst[1] is not execution.compilation:
            self.expect(BAD_DATA, "Execution_burstCompute", execution.handle, burst[0])
            return
        self._compute(execution, "Execution_burstCompute", execution.handle, burst[0])

    def _compute(self, execution: ExecutionState, name: str, *arguments: Any) -> None:
        if not execution.is_documented:
            return
        self._settle(execution)
        codes = execution.begin()
        code = self.expect(execution.compute() if codes is None else codes, name, *arguments)
        self._check_result(execution, code)

    def _check_result(self, execution: ExecutionState, code: ResultCode) -> None:
        buffer = self.outputs.get(execution)
        sources = [execution.arguments.get((False, index)) for index in (0, 1)]
        is_known = all(each is not None and each.memory is None and not each.is_omitted for each in sources)
        if code == ResultCode.NO_ERROR and buffer is not None and is_known:
            assert (buffer[:12].view(np.float32) == 3).all(), "1 + 2 is not 3"

    def _settle(self, execution: ExecutionState) -> None:
        """Wait for the computation of an execution, so that its state is known."""
        if execution.phase is Phase.STARTED:
            handle, codes = [(event, codes) for event, started, codes in self.started if started is execution][-1]
            self.expect(codes, "Event_wait", handle)
            execution.phase = Phase.COMPLETED

    @rule(
        target=events,
        execution=executions,
        dependencies=st.lists(events, max_size=2),
        is_fenced=flags,
        duration=st.sampled_from([0, 0, 600 * 10**9, 2**64 - 1]),
    )
    def start(self, execution: ExecutionState, dependencies: list[Any], is_fenced: bool, duration: int) -> Any:
        if not execution.is_documented:
            return multiple()
        self._settle(execution)
        expected = execution.begin()
        if expected is None and is_fenced:
            is_limited = duration and not execution.compilation.has_single_device
            if is_limited or not execution.has_known_output:
                expected = execution.fail(BAD_DATA)
        codes = execution.compute() if expected is None else expected
        started = OK if expected is None else expected
        if is_fenced:
            failed = any(each[1] != OK for each in dependencies)
            listed = handles(*(each[0] for each in dependencies))
            arguments = (execution.handle, listed, len(dependencies), duration)
            handle = self.create("Event", started, "Execution_startComputeWithDependencies", *arguments)
            if handle is not None and failed:
                codes = self._fail_by_dependencies(execution, dependencies, codes)
        else:
            handle = self.create("Event", started, "Execution_startCompute", execution.handle)
        if handle is None:
            return multiple()
        execution.phase = Phase.STARTED
        self.started.append((handle, execution, codes))
        if any(each.memory is not None and each.memory.is_tensor for each in execution.arguments.values()):
            self._settle(execution)  # other executions use its memories
        return handle, codes, is_fenced

    def _fail_by_dependencies(self, execution: ExecutionState, dependencies: list[Any], codes: Codes) -> Codes:
        """Return the codes of a computation whose dependencies may fail."""
        failed = frozenset({ResultCode.OP_FAILED})
        must_fail = any(ResultCode.NO_ERROR not in each[1] for each in dependencies)
        execution.result = failed if must_fail else codes | failed
        execution.has_shape = False
        output = execution.arguments[True, 0].memory
        if output is not None and output.is_tensor and must_fail:
            output.has_value = False
        return execution.result

    @rule(event=events)
    def wait(self, event: tuple[int, Codes, bool]) -> None:
        self.expect(event[1], "Event_wait", event[0])
        for handle, execution, _ in self.started:
            if handle == event[0] and self._is_last(handle, execution) and execution.phase is Phase.STARTED:
                execution.phase = Phase.COMPLETED

    def _is_last(self, handle: int, execution: ExecutionState) -> bool:
        return [each for each, started, _ in self.started if started is execution][-1] == handle

    @rule(event=events)
    def use_fence(self, event: tuple[int, Codes, bool]) -> None:
        number = ctypes.c_int(-7)
        is_fenced = event[2]
        self.expect(OK if is_fenced else BAD_DATA, "Event_getSyncFenceFd", event[0], ctypes.byref(number))
        assert (number.value > 0) == is_fenced
        imported = self.create("Event", OK if is_fenced else BAD_DATA, "Event_createFromSyncFenceFd", number.value)
        if imported is not None:
            os.close(number.value)
            self.expect(OK, "Event_wait", imported)
            self.free("Event", imported)

    @rule(event=consumes(events))
    def free_event(self, event: tuple[int, Codes, bool]) -> None:
        for handle, execution, _ in self.started:
            if handle == event[0] and self._is_last(handle, execution) and execution.phase is Phase.STARTED:
                execution.phase = Phase.COMPLETED  # freeing an event waits
        self.started = [each for each in self.started if each[0] != event[0]]
        self.free("Event", event[0])

    @rule(execution=executions, index=st.sampled_from([0, 0, 1]), code=st.integers(-1, 4))
    def query_results(self, execution: ExecutionState, index: int, code: int) -> None:
        room, number = uint32s(0, 0, 0, 0), ctypes.c_uint64(5)
        expected = execution.results(index)
        self.expect(expected, "Execution_getOutputOperandRank", execution.handle, index, ctypes.byref(number))
        self.expect(expected, "Execution_getOutputOperandDimensions", execution.handle, index, room)
        duration = (execution.handle, code, ctypes.byref(number))
        result = self.expect(execution.duration(code), "Execution_getDuration", *duration)
        assert result == ResultCode.NO_ERROR or number.value == 2**64 - 1

    @rule(execution=consumes(executions))
    def free_execution(self, execution: ExecutionState) -> None:
        self.free("Execution", execution.handle)  # ignored while it computes: the end of the sequence frees it again

    # ---- Misuse -------------------------------------------------------------------------------------

    @rule(function=st.sampled_from(MISUSED), data=st.data())
    def misuse(self, function: Function, data: st.DataObject) -> None:
        """Call any function with null pointers and with handles that were freed, or belong to nothing."""
        room = ctypes.create_string_buffer(256)
        is_null, arguments = False, list[Any]()
        for parameter in function.parameters:
            choices: list[Any] = [1]
            if parameter.type == "const ANeuralNetworksOperandType*":
                choices = [operand_type(OperandType.TENSOR_FLOAT32, (1,))]
            elif parameter.is_handle:
                choices = [*self.freed[-3:], None]
            elif parameter.is_pointer:
                choices = [room, room, None]
            chosen = data.draw(st.sampled_from(choices), label=parameter.name)
            arguments.append(chosen)
            is_null |= parameter.is_pointer and chosen is None and not function.may_be_null(parameter)
        name = short_name(function.name)
        if function.is_free:
            getattr(self.library, name)(*arguments)
            return
        if name == "Memory_createFromAHardwareBuffer":
            expected: Codes = NULL if is_null else frozenset({ResultCode.OP_FAILED})
        elif name in ("Event_createFromSyncFenceFd", "Memory_createFromFd", "getDevice"):
            if not is_null:
                return  # they take no handle
            expected = NULL
        elif name in ("Model_create", "MemoryDesc_create"):
            if not is_null:
                return
            expected = NULL
        elif _has_handles_in_arrays(function) and not is_null:
            expected = NULL | BAD_DATA  # the array has null pointers
        else:
            expected = NULL if is_null else BAD_DATA
        self.expect(expected, name, *arguments)


def _has_handles_in_arrays(function: Function) -> bool:
    return any(each.type.endswith("* const*") for each in function.parameters)


def _side(key: tuple[bool, int]) -> str:
    return "Output" if key[0] else "Input"


def _describe(argument: object) -> str:
    match argument:
        case int():
            return f"{argument:#x}" if argument > 2**40 else str(argument)
        case ctypes.Array():
            return str(list(argument)) if len(argument) < 17 else "..."
        case _:
            return "NULL" if argument is None else type(argument).__name__
