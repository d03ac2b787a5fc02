"""The Backend interface: the only module that the author of a backend must read.

A backend says, operation by operation, whether it takes it, and compiles the subgraphs that placement gives it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from driver.backends.layout import Relayout
from driver.backends.memory import MemoryManager, MemoryMode
from driver.graph import Graph, OperationView, SubgraphView
from driver.operations.shape import MAX_TENSOR_BYTES
from nnhal.types import AnyArray, ExecutionPreference, Extension, PerformanceInfo

__all__ = [
    "API_VERSION",
    "Backend",
    "CompileOptions",
    "CompiledSubgraph",
    "Graph",
    "OperationView",
    "OptimizedSubgraph",
    "Output",
    "Profile",
    "Run",
    "Sections",
    "SubgraphView",
    "Substitution",
    "Support",
]

API_VERSION = (1, 1)
"""(major, minor). A new minor only adds what has a default here, so older backends keep working; whoever adds such a
thing raises the minor and says so below. A new major may break them.

1.0: id, version, supports, compile, execute, capabilities, performance.
1.1: load, save, fingerprint, extensions, optimize, the hooks, memory, layouts, and profile of a run.
"""


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a backend takes an operation. True when there is no reason against it.

    Attributes:
        reason: why not, in words that the owner of a model can act on.
        nearest: the nearest signature that the backend would take, or "".
    """

    reason: str = ""
    nearest: str = ""

    def __bool__(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a model will be used.

    Attributes:
        preference: an ExecutionPreference.
        tensor_bytes: the most that one tensor may have; `driver.operations.infer` holds it.
    """

    preference: int
    tensor_bytes: int = MAX_TENSOR_BYTES

    @property
    def memory_mode(self) -> MemoryMode:
        """LIMIT for a model that is to save power: it runs seldom, and memory is better left to others. (1.1)"""
        return MemoryMode.LIMIT if self.preference == ExecutionPreference.LOW_POWER else MemoryMode.NORMAL


class Profile(Protocol):
    """Takes what a backend has measured in one execution."""

    def span(self, name: str, start_ns: int, duration_ns: int, operation: OperationView | None = None) -> None:
        """Tells of a piece of work; from any thread, until `execute` returns.

        Args:
            name: what it is called where people look at it.
            start_ns: of time.perf_counter_ns(), CLOCK_MONOTONIC in C.
            operation: the operation that this was all the work of, if it was one.
        """


class Run(Protocol):
    """One execution, as far as a backend must know it."""

    @property
    def profile(self) -> Profile | None:
        """Where spans go; None when nobody listens: measure nothing then. (1.1)"""

    def check(self) -> None:
        """To be called between operations.

        Raises:
            HalError: the deadline has passed, or the execution was cancelled; let it pass through.
        """


class Output(Protocol):
    """Where one output of a subgraph goes."""

    @property
    def declared(self) -> tuple[int, ...]:
        """What is known of the shape; 0 is an unknown dimension, () an unknown rank."""

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Delivers the value; called once for each output.

        Args:
            array: dtype of the operand's type, in its final shape.
            keep: the array is given away and will not change any more; else what is needed of it is copied.
        """


@dataclass(frozen=True, slots=True)
class Sections:
    """What a compiled subgraph keeps in the compilation cache.

    Attributes:
        model: what to run. Sealed: it comes back as it was, or not at all.
        data: constants. Arrays of integers of 32 bits or more, and of booleans, are sealed as well. All others may come
            back with other values, if somebody changed the file and its digest is not checked: wrong answers are all
            that may follow from that. They keep dtype and shape.
    """

    model: bytes
    data: tuple[AnyArray, ...] = ()


class CompiledSubgraph(ABC):
    """A subgraph that is ready to run. Called from several threads at once, unless it has a `resize` or a `memory`."""

    memory: MemoryManager | None = None
    """What it plans its memory with; the host acquires it before each execution, and releases it after. (1.1)"""

    copies_inputs: bool = False
    """Whether it copies every input before it looks at a value. Else, where a client may write to inputs meanwhile, the
    host copies them. (1.1)"""

    layouts: Mapping[int, Relayout] = {}
    """Inputs and outputs that it takes and gives in a layout of its own; the host converts where others want another.
    An output that is converted has all its dimensions declared. (1.1)"""

    @abstractmethod
    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Runs the subgraph.

        Args:
            inputs: one array for each of `SubgraphView.inputs`, not to be written; None for an omitted argument.
            outputs: one for each of `SubgraphView.outputs`.
            run: the execution that this is part of.

        Raises:
            HalError: the values make the execution fail.
        """

    def save(self) -> Sections | None:
        """What the compilation cache keeps for `Backend.load` (optional); None: compiling again is as good.

        Called once at most, after the compilation and before the first execution.
        """
        return None

    # ---- Hooks (1.1), all optional. An execution calls, in this order: resize_begin, resize, resize_end; then
    # execute_begin, execute, wait_finish, execute_end. An _end is called wherever its _begin has succeeded, also when
    # something in between fails.

    def resize_begin(self) -> None:
        """Before `resize`."""
        return

    def resize(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        """Before the first execution, and before each whose inputs have other shapes: a place to plan memory.

        One that has this is executed by one thread at a time. When it fails, the next execution resizes again.

        Args:
            shapes: of the inputs; None for an omitted one.
        """
        return

    def resize_end(self) -> None:
        """After `resize`."""
        return

    def execute_begin(self) -> None:
        """Before `execute`."""
        return

    def execute_end(self) -> None:
        """After `execute` and `wait_finish`."""
        return

    def wait_finish(self) -> None:
        """For an `execute` that returns early: returns when all outputs are written. Not called when that failed."""
        return


@dataclass(frozen=True, slots=True)
class Substitution:
    """What runs in place of operations.

    Attributes:
        operations: indexes of them. No way from one of them to another leads through operations that are not.
        compiled: has the inputs and outputs of `SubgraphView.part(operations)`. What it saves goes to `Backend.load`
            with that view at a warm start; where it saves nothing, the whole subgraph is optimised again.
    """

    operations: tuple[int, ...]
    compiled: CompiledSubgraph


@dataclass(frozen=True, slots=True)
class OptimizedSubgraph:
    """What a backend made of a subgraph. Operations that are in neither are untouched: they are compiled as ever.

    Attributes:
        substitutions: what it has replaced.
        failed: indexes of operations that it will not run after all, and why: they are offered to other backends, and
            nothing else of this is used; the rest comes again.
    """

    substitutions: tuple[Substitution, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)


class Backend(ABC):
    """A compute backend. Made once for each device; its methods are called from several threads at once."""

    id: str
    """Unique among backends."""
    version: str
    """Version of the backend itself; goes into the device's version string."""

    @abstractmethod
    def supports(self, operation: OperationView) -> Support:
        """Whether the backend takes an operation. A yes is a promise that it compiles."""

    @abstractmethod
    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Makes a subgraph ready to run. Every operation in it was supported.

        Raises:
            HalError: it cannot be compiled.
        """

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Makes a subgraph ready to run from what it saved (optional).

        Args:
            subgraph: as it was when it was compiled; its operations are only bound when somebody looks at them.
            sections: from the same version of the same backend; the arrays are not to be written, nor kept beyond this
                call if they can be helped: they hold the memory of all that was saved with them.
            options: as it was compiled with.

        Raises:
            HalError: it cannot be loaded.
        """
        return self.compile(subgraph, options)

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Looks at a subgraph as a whole before it is compiled (optional, 1.1); by default all is left untouched.

        Raises:
            HalError: it cannot be compiled.
        """
        return OptimizedSubgraph()

    # ---- Hooks (1.1), all optional. `network` names one compiled subgraph and is never used twice.

    def before_load(self, network: int) -> None:
        """Before `compile` or `load`. When that fails, `after_unload` is the only other hook for this number."""
        return

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        """After `compile` or `load`."""
        return

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        """When nobody uses it any more; from any thread."""
        return

    def after_unload(self, network: int) -> None:
        """When it is gone, if the backend has kept no reference to it."""
        return

    def fingerprint(self) -> str:
        """What else `load` depends on: the version of an engine (optional)."""
        return ""

    def capabilities(self) -> Mapping[str, bool]:
        """Named properties (optional)."""
        return {}

    def extensions(self) -> Sequence[Extension]:
        """Vendor extensions of which it takes operations (optional)."""
        return ()

    def performance(self) -> PerformanceInfo:
        """Ratio to the CPU, lower is better (optional)."""
        return PerformanceInfo(1.0, 1.0)
