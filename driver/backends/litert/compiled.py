"""A subgraph that LiteRT runs: a model for each set of input shapes, and interpreters for calls that run side by side.

What the engine cannot take at execution (other shapes than it was asked about, no memory, a failing operator) is run by
CpuRef on the same subgraph, which gives the result or the exact error.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock

from driver.backends.api import CompiledSubgraph, CompileOptions, Output, Run, Sections, SubgraphView
from driver.backends.litert.build import Built, build, static_shapes
from driver.backends.litert.engine import Interpreter
from driver.backends.litert.known import Refused
from driver.backends.litert.saving import load, save
from driver.backends.litert.threads import ThreadChoice, processors
from driver.backends.reference.backend import CpuRef
from driver.operations.call import Shape
from nnhal.errors import general_failure
from nnhal.types import AnyArray, ExecutionPreference

_LOG = logging.getLogger(__name__)
_KEPT_SHAPES = 4
"""Sets of input shapes for which a model is kept."""


class Engine:
    """One model with its interpreters: made on demand, as many as there are processors.

    Args:
        built: the model.
        choose: whether more threads than one may serve one call.

    Raises:
        RuntimeError: the engine refuses the model, or cannot allocate its tensors.
    """

    def __init__(self, built: Built, *, choose: bool) -> None:
        self.built = built
        self._threads = ThreadChoice(processors() if choose else 1)
        self._slots: SimpleQueue[None] = SimpleQueue()  # as a semaphore it costs a tenth of threading's
        for _ in range(processors()):
            self._slots.put(None)
        self._idle = [Interpreter(built.file.source, 1)]

    def run(self, inputs: Sequence[AnyArray], outputs: Sequence[Output]) -> None:
        """Runs the model once.

        Raises:
            RuntimeError: the engine failed; nothing was delivered.
            HalError: an output could not be delivered.
        """
        self._slots.get()
        try:
            interpreter = self._take()
            for tensor, array in zip(self.built.inputs, inputs, strict=True):
                if tensor is not None:
                    interpreter.view(tensor)[...] = array
            self._invoke(interpreter)
            try:
                for output, (tensor, _) in zip(outputs, self.built.outputs, strict=True):
                    output.write(interpreter.view(tensor))
            finally:
                self._idle.append(interpreter)
        finally:
            self._slots.put(None)

    def let_go(self) -> None:
        """Frees the memory of interpreters that are idle; the next call makes a new one."""
        self._idle.clear()

    def _invoke(self, interpreter: Interpreter) -> None:
        if not self._threads.open:
            interpreter.invoke()
            return
        start = time.perf_counter()
        interpreter.invoke()
        self._threads.note(interpreter.threads, time.perf_counter() - start)

    def _take(self) -> Interpreter:
        """An idle interpreter with as many threads as wanted, or a new one; others are let go."""
        wanted = self._threads.wanted
        while True:
            try:
                found = self._idle.pop()
            except IndexError:
                return Interpreter(self.built.file.source, wanted)
            if found.threads == wanted:
                return found


class LitertSubgraph(CompiledSubgraph):
    """A subgraph on the engine.

    Args:
        sections: what it saved; without them it is built from its operations.

    Raises:
        HalError: GENERAL_FAILURE: the engine refuses the model.
    """

    copies_inputs = True  # into the engine's tensors

    def __init__(self, subgraph: SubgraphView, options: CompileOptions, sections: Sections | None = None) -> None:
        self._subgraph = subgraph
        self._options = options
        self._lock = Lock()
        self._engines: OrderedDict[tuple[Shape, ...], Engine | None] = OrderedDict()
        self._reference: CompiledSubgraph | None = None
        try:
            self._only = self._fixed(sections)
        except (Refused, RuntimeError) as error:
            raise general_failure(f"CpuAcc cannot compile {subgraph.graph.name}: {error}") from error

    def save(self) -> Sections | None:
        """The model, where its shapes are fixed; others are built when a call brings shapes."""
        if self._only is None:
            return None
        (shapes,) = self._engines
        return save(self._only.built, shapes)

    def _fixed(self, sections: Sections | None) -> Engine | None:
        """The engine of the one set of shapes that the model allows; None where it allows several."""
        if sections is not None:
            built, shapes = load(sections)
        elif (static := static_shapes(self._subgraph)) is not None:
            built, shapes = self._built(static), tuple(static)
        else:
            return None
        self._engines[shapes] = made = self._engine(built)
        return made

    @property
    def engines(self) -> list[Engine]:
        """The models that are kept."""
        return [engine for engine in self._engines.values() if engine is not None]

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Runs the model for the shapes of the inputs."""
        run.check()
        given = [array for array in inputs if array is not None]
        if len(given) == len(inputs):
            engine = self._only or self._for_shapes(tuple(array.shape for array in given))
            if engine is not None and _fit(engine.built, outputs):
                try:
                    engine.run(given, outputs)
                    return
                except (RuntimeError, MemoryError) as error:
                    reason = str(error) or type(error).__name__
                    _LOG.warning("CpuRef runs %s: LiteRT says %s", self._subgraph.graph.name, reason)
                engine.let_go()
        private = [None if array is None else array.copy() for array in inputs]
        self._fall_back().execute(private, outputs, run)

    def _for_shapes(self, shapes: tuple[Shape, ...]) -> Engine | None:
        """The engine for input shapes; None where it cannot take them."""
        with self._lock:
            if shapes in self._engines:
                self._engines.move_to_end(shapes)
                return self._engines[shapes]
            try:
                engine = self._engine(self._built(shapes))
            except (Refused, RuntimeError, MemoryError) as error:
                _LOG.info("CpuRef runs %s with shapes %s: %s", self._subgraph.graph.name, shapes, error)
                engine = None
            self._engines[shapes] = engine
            if len(self._engines) > _KEPT_SHAPES:
                self._engines.popitem(last=False)
            return engine

    def _built(self, shapes: Sequence[Shape]) -> Built:
        return build(self._subgraph, shapes, self._options.tensor_bytes)

    def _engine(self, built: Built) -> Engine:
        return Engine(built, choose=self._options.preference != ExecutionPreference.SUSTAINED_SPEED)

    def _fall_back(self) -> CompiledSubgraph:
        with self._lock:
            if self._reference is None:
                self._reference = CpuRef().compile(self._subgraph, self._options)
            return self._reference


def _fit(built: Built, outputs: Sequence[Output]) -> bool:
    """Whether no declared shape is contradicted."""
    for output, (_, shape) in zip(outputs, built.outputs, strict=True):
        if output.declared != shape and not _fits(output.declared, shape):
            return False
    return True


def _fits(declared: Shape, shape: Shape) -> bool:
    if not declared:
        return True
    return len(declared) == len(shape) and all(d in (0, s) for d, s in zip(declared, shape, strict=True))
