"""Subgraph that LiteRT runs, with a model for each set of input shapes and interpreters for concurrent calls.

If the engine fails at execution (unsupported shapes, no memory, a failing operator), CpuRef runs the subgraph. It
returns the result or the exact error. Regions of the LiteRT extension run on LiteRT only.

An interpreter has a process of its own, if the hosting has any, for regions of one of several owners, and for models
that take long: LiteRT cannot be stopped in a call, but its process can.
"""

import logging
import os
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Lock

from nnhal.cpu import available_cpus
from nnhal.errors import general_failure
from nnhal.lru import LruDict
from nnhal.types import AnyArray, ExecutionPreference
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, Output, Profile, Run, Sections, SubgraphView
from nnhal_driver.backends.boundary.outputs import fits
from nnhal_driver.backends.deferral import TurnTakingRun
from nnhal_driver.backends.division import LARGE, copy_to
from nnhal_driver.backends.engine_process import (
    PROCESS_BYTES,
    Check,
    Engine,
    EngineHosting,
    EngineLauncher,
    EngineModel,
)
from nnhal_driver.backends.litert.convert import ConvertedModel, convert, region_model, region_of, static_shapes
from nnhal_driver.backends.litert.engine import Interpreter
from nnhal_driver.backends.litert.inlining import element_dtype
from nnhal_driver.backends.litert.serialization import load, save
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.backends.litert.single_operations import SingleOperations
from nnhal_driver.backends.litert.threads import ThreadChoice
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.operations.call import Shape
from nnhal_driver.operations.multiply_adds import LONG_STEPS

_LOG = logging.getLogger(__name__)
_MAX_MODELS = 4
"""Size of the LRU cache of models by input shapes."""
_DYNAMIC_BYTES = 32 * 2**20
"""Memory for the tensors of a region whose shapes are unknown, besides that for the declared shapes."""
_MARGIN_BYTES = 2**16
"""Space between tensors in memory that processes share."""
_POLL_S = 0.01
"""Seconds between two looks at the deadline and the cancellation."""
_ENGINE = f"{Interpreter.__module__}:{Interpreter.__name__}"
NO_PROCESSES = EngineHosting()
SET_UP = "set up profiling"
"""Name of the work that only the first profiled execution does."""


class InterpreterPool:
    """Interpreters of one model, created on demand, at most one for each CPU.

    Args:
        options: its `reserve` is called for the memory of each interpreter.
        launcher: launches a process for each of them; None to have them in this one.

    Raises:
        RuntimeError: the engine rejects the model, or cannot allocate its tensors.
        HalError: raised by the functions of the options.
    """

    def __init__(
        self, model: ConvertedModel, max_threads: int, options: CompileOptions, launcher: EngineLauncher | None = None
    ) -> None:
        self.model = model
        self.launcher = launcher
        self._reserve = options.reserve
        self._threads = ThreadChoice(max_threads)
        self._slots: SimpleQueue[None] = SimpleQueue()  # a semaphore at a tenth of the cost of threading's
        for _ in range(available_cpus()):
            self._slots.put(None)
        self._idle = [self._create(1, options.check)] if model.operators else []

    @property
    def threads(self) -> int:
        """Number of threads of the next call."""
        return self._threads.threads

    def run(self, inputs: Sequence[AnyArray], outputs: Sequence[Output], check: Check) -> None:
        """Run the model once. `check` is called while a process works.

        Raises:
            RuntimeError: the engine failed, and no output was delivered.
            HalError: raised by `check`, or an output could not be delivered.
        """
        if not self.model.operators:
            self._deliver(None, outputs)
            return
        self._take_slot(check)
        try:
            interpreter = self._take(check)
            if self.model.has_variables:
                interpreter.reset_variables()
            if self.model.is_dynamic:
                self._resize_and_write(interpreter, inputs, check)
            else:
                for tensor, array in zip(self.model.inputs, inputs, strict=True):
                    if tensor is not None and array.size > LARGE:
                        copy_to(interpreter.view(tensor), array, check)
                    elif tensor is not None:
                        interpreter.view(tensor)[...] = array
            self._invoke(interpreter, check)
            try:
                self._deliver(interpreter, outputs)
            finally:
                self._idle.append(interpreter)
        finally:
            self._slots.put(None)

    def _take_slot(self, check: Check) -> None:
        while True:
            try:
                self._slots.get(timeout=_POLL_S)
            except Empty:
                check()
            else:
                return

    def _resize_and_write(self, interpreter: Engine, inputs: Sequence[AnyArray], check: Check) -> None:
        """Give the inputs of a region their shapes and values. A tensor of rank 0 is [1] as an operand."""
        shapes: dict[int, Shape] = {}
        for tensor, array in zip(self.model.inputs, inputs, strict=True):
            assert tensor is not None
            is_scalar = array.shape == (1,) and not interpreter.view(tensor).ndim
            shapes[tensor] = () if is_scalar else array.shape
        if any(interpreter.view(tensor).shape != shape for tensor, shape in shapes.items()):
            interpreter.resize(shapes, check)
        for (tensor, shape), array in zip(shapes.items(), inputs, strict=True):
            interpreter.write(tensor, array.reshape(shape))

    def _deliver(self, interpreter: Engine | None, outputs: Sequence[Output]) -> None:
        """Write the outputs. Without an interpreter, all of them are constants."""
        for position, (output, (tensor, _)) in enumerate(zip(outputs, self.model.outputs, strict=True)):
            if tensor is None:
                output.write(self.model.constants[position], keep=True)
            else:
                assert interpreter is not None
                value = interpreter.view(tensor)
                output.write(value if value.ndim else value.reshape(1))

    def drop_idle(self) -> None:
        """Free the memory of idle interpreters. The next call creates a new one."""
        self._idle.clear()

    def _invoke(self, interpreter: Engine, check: Check) -> None:
        if not self._threads.is_measuring:
            interpreter.invoke(check)
            return
        start = time.perf_counter()
        interpreter.invoke(check)
        self._threads.record(interpreter.threads, time.perf_counter() - start)

    def _take(self, check: Check) -> Engine:
        """Return an idle interpreter with the chosen number of threads, or a new one. Drops idle ones with another."""
        threads = self._threads.threads
        while True:
            try:
                interpreter = self._idle.pop()
            except IndexError:
                return self._create(threads, check)
            if interpreter.threads == threads:
                return interpreter
            del interpreter  # a large model has no room for the weights of another one

    def _create(self, threads: int, check: Check) -> Engine:
        interpreter: Engine
        if self.launcher is None:
            reservation = self._reserve(self.model.engine_bytes)
            interpreter = Interpreter(self.model.file.source, threads)
        else:
            # the tensors may lie in both processes, and those of regions be larger than they declare
            size = self.model.engine_bytes + self.model.is_dynamic * _DYNAMIC_BYTES
            reservation = self._reserve(PROCESS_BYTES + 3 * size)
            interpreter = self._launch(self.launcher, threads, size, check)
        interpreter.reservation = reservation
        return interpreter

    def _launch(self, launcher: EngineLauncher, threads: int, size: int, check: Check) -> Engine:
        inputs = [tensor for tensor in self.model.inputs if tensor is not None]
        outputs = [tensor for tensor, _ in self.model.outputs if tensor is not None]
        file = self.model.file.open()
        try:
            sizes = PROCESS_BYTES + size, 2 * size + _MARGIN_BYTES
            return launcher.launch(EngineModel("CpuAcc", _ENGINE, file, inputs, outputs, threads, *sizes), check)
        finally:
            os.close(file)


class LitertSubgraph(CompiledSubgraph):
    """A subgraph on the engine.

    Args:
        subgraph, options: see `Backend.compile`.
        hosting: where its interpreters run.
        sections: saved sections; if None, the operations are converted.
        max_threads: how many threads may serve one call; 0: as many as there are CPUs.

    Raises:
        HalError: GENERAL_FAILURE: the engine rejects the model.
    """

    copies_inputs = True  # into the engine's tensors

    def __init__(
        self,
        subgraph: SubgraphView,
        options: CompileOptions,
        hosting: EngineHosting = NO_PROCESSES,
        sections: Sections | None = None,
        max_threads: int = 0,
    ) -> None:
        self._subgraph = subgraph
        self._hosting = hosting
        self._options = options
        self._max_threads = max_threads or available_cpus()
        self._lock = Lock()
        self._pools: LruDict[tuple[Shape, ...], InterpreterPool | None] = LruDict(_MAX_MODELS)
        self._reference: CompiledSubgraph | None = None
        self._profiling = Lock()
        self._profiled: tuple[object, SingleOperations] | None = None
        dtypes = (element_dtype(subgraph.graph, operand) for operand in subgraph.inputs)
        self._opaque_inputs = {i: dtype for i, dtype in enumerate(dtypes) if dtype is not None}
        try:
            self._static = self._create_static(sections)
        except (Unsupported, RuntimeError) as error:
            raise general_failure(f"CpuAcc cannot compile {subgraph.graph.name}: {_first_line(error)}") from error

    def save(self) -> Sections | None:
        """Return the sections of the model, or None if its shapes depend on the inputs."""
        if self._static is None:
            return None
        (shapes,) = self._pools
        return save(self._static.model, shapes)

    def _create_static(self, sections: Sections | None) -> InterpreterPool | None:
        """Return the pool of the only possible set of input shapes, or None if there are several."""
        if sections is not None:
            model, shapes = load(sections, self._options.reserve)
        elif (region := region_of(self._subgraph)) is not None:
            model, shapes = region_model(region, self._options.reserve), ()
        elif (fixed := static_shapes(self._subgraph)) is not None:
            model, shapes = self._convert(fixed), tuple(fixed)
        else:
            return None
        self._options.check()
        self._pools[shapes] = pool = self._create_pool(model)
        return pool

    @property
    def pools(self) -> list[InterpreterPool]:
        """Pools of all models in memory."""
        return [pool for pool in self._pools.values() if pool is not None]

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Run the model for the shapes of the inputs."""
        run.check()
        arrays = [array for array in inputs if array is not None]
        for position, dtype in self._opaque_inputs.items():
            arrays[position] = arrays[position].view(dtype)
        if len(arrays) == len(inputs):
            pool = self._static or self._pool_for(tuple(array.shape for array in arrays))
            if pool is not None and _matches_declared(pool.model, outputs):
                try:
                    if run.profile is None or not self._run_profiled(pool, arrays, outputs, run, run.profile):
                        check = run.check
                        if pool.launcher is not None and isinstance(run, TurnTakingRun):
                            check = run.check_elsewhere
                        pool.run(arrays, outputs, check)
                    return
                except (RuntimeError, MemoryError) as error:
                    reason = _first_line(error)
                    if pool.model.has_regions:  # which CpuRef cannot run
                        raise general_failure(f"LiteRT failed in {self._subgraph.graph.name}: {reason}") from None
                    _LOG.warning("CpuRef runs %s: LiteRT failed: %s", self._subgraph.graph.name, reason)
                pool.drop_idle()
        private = [None if array is None else array.copy() for array in inputs]
        self._fall_back().execute(private, outputs, run)

    def _pool_for(self, shapes: tuple[Shape, ...]) -> InterpreterPool | None:
        """Return the pool for input shapes, or None if the engine does not support them."""
        with self._lock:
            if shapes in self._pools:
                return self._pools.use(shapes)
            try:
                pool = self._create_pool(self._convert(shapes))
            except (Unsupported, RuntimeError, MemoryError) as error:
                _LOG.info("CpuRef runs %s with shapes %s: %s", self._subgraph.graph.name, shapes, error)
                pool = None
            self._pools.put(shapes, pool)
            return pool

    def _run_profiled(
        self, pool: InterpreterPool, inputs: Sequence[AnyArray], outputs: Sequence[Output], run: Run, profile: Profile
    ) -> bool:
        """Run the operations one by one, and report their times. Return False if that is not possible."""
        if pool.launcher is not None or pool.model.is_dynamic:
            return False
        threads = pool.threads
        shapes = [array.shape for array in inputs]
        key = (*shapes, threads)
        with self._profiling:
            try:
                if self._profiled is None or self._profiled[0] != key:
                    start_ns = time.perf_counter_ns()
                    operations = SingleOperations(self._subgraph, shapes, self._options, threads)
                    profile.span(SET_UP, start_ns, time.perf_counter_ns() - start_ns)
                    self._profiled = (key, operations)
                self._profiled[1].run(inputs, outputs, run, profile)
            except (Unsupported, RuntimeError, MemoryError) as error:
                _LOG.info("the operations of %s are not measured: %s", self._subgraph.graph.name, error)
                return False
            return True

    def _convert(self, shapes: Sequence[Shape]) -> ConvertedModel:
        options = self._options
        return convert(self._subgraph, shapes, options.tensor_bytes, options.check, options.reserve)

    def _create_pool(self, model: ConvertedModel) -> InterpreterPool:
        # further threads shorten one call, and cost processor time and the throughput of concurrent calls
        is_fast = self._options.preference == ExecutionPreference.FAST_SINGLE_ANSWER
        needs_process = (model.has_regions and self._hosting.is_shared) or model.steps > LONG_STEPS
        launcher = self._hosting.launcher if needs_process else None
        return InterpreterPool(model, self._max_threads if is_fast else 1, self._options, launcher)

    def _fall_back(self) -> CompiledSubgraph:
        with self._lock:
            if self._reference is None:
                self._reference = CpuRef().compile(self._subgraph, self._options)
            return self._reference


def _matches_declared(model: ConvertedModel, outputs: Sequence[Output]) -> bool:
    """Return whether the shapes of the outputs match the declared ones."""
    for output, (_, shape) in zip(outputs, model.outputs, strict=True):
        if output.declared != shape and not fits(shape, output.declared):
            return False
    return True


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
