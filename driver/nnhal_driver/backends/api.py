"""Interface of compute backends. Backend authors import it from `nnhal_backend.v1`.

A backend tells which operations it supports, and compiles the subgraphs that placement assigns to it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nnhal.types import AnyArray, DeviceType, ExecutionPreference, Extension, PerformanceInfo
from nnhal_driver.backends.allocators import CustomAllocator
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory
from nnhal_driver.backends.layout import Relayout
from nnhal_driver.backends.memory import MemoryManager, MemoryMode
from nnhal_driver.graph import Graph, OperationView, SubgraphView
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES

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
    "ProfilingContext",
    "Run",
    "Sections",
    "SubgraphView",
    "Substitution",
    "Support",
]

API_VERSION = (1, 2)
"""Version of the interface, (major, minor). A new minor version only adds members with a default, so older backends
keep working. A new major version may break them. Each addition is listed here and marked at the member:

1.0: id, version, supports, compile, execute, capabilities, performance.
1.1: load, save, fingerprint, extensions, optimize, the hooks, memory, layouts, and profile of a run.
1.2: hooks for networks, `CompileOptions.network`, `check` and `reserve`; close, use_allocator, device_type,
stops_between_operations, and a factory that takes `BackendOptions`; create_memory_manager, `CompileOptions.memory`
and `MemoryManager.on_allocate`; `CompileOptions.reserve`; creator, output_shapes and create_workload_factory of
`PerOperationBackend`; `CompiledSubgraph.device_operands` with `DeviceMemory`, and `Run.defer`;
create_profiling_context and `Profile.execution`; `Backend.hardware` and `memory_bytes`.
"""


@dataclass(frozen=True, slots=True)
class Support:
    """Result of `Backend.supports`. True if there is no reason against the operation.

    Attributes:
        reason: why not, in words that help the owner of a model; or "".
        nearest: the nearest signature that the backend supports, or "".
    """

    reason: str = ""
    nearest: str = ""

    def __bool__(self) -> bool:
        return not self.reason


def _continue() -> None:
    """Let a compilation without a deadline continue."""


def _reserve_nothing(size: int) -> None:
    """Reserve nothing: the memory of the client is not limited."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a preparation.

    Attributes:
        preference: an ExecutionPreference.
        tensor_bytes: largest size of one tensor; `infer` enforces it.
        network: number of the network that the subgraph is a part of; 0 if the host compiles it for itself. (1.2)
        memory: what `Backend.create_memory_manager` returned for the subgraph. (1.2)
        check: raises a HalError if the deadline of the preparation has passed, or if it was cancelled. Call it between
            the steps of a long `optimize`, `compile` or `load`, and do not catch it. It does nothing afterwards. (1.2)
        reserve: counts bytes as memory of the client until the object that it returns is freed. Call it before you
            allocate much memory for a compiled subgraph, also in `execute`. It raises a HalError if the client may not
            use so much; do not catch it. (1.2)
    """

    preference: int
    tensor_bytes: int = MAX_TENSOR_BYTES
    network: int = 0
    check: Callable[[], None] = field(default=_continue, compare=False, repr=False)
    memory: MemoryManager | None = None
    reserve: Callable[[int], object] = field(default=_reserve_nothing, compare=False, repr=False)

    @property
    def memory_mode(self) -> MemoryMode:
        """LIMIT for LOW_POWER: such a model runs rarely, so others can use its memory (since 1.1)."""
        return MemoryMode.LIMIT if self.preference == ExecutionPreference.LOW_POWER else MemoryMode.NORMAL


class Profile(Protocol):
    """Receiver of a backend's measurements in one execution."""

    @property
    def execution(self) -> int:
        """Number of the execution, see `ProfilingContext` (since 1.2)."""

    def span(self, name: str, start_ns: int, duration_ns: int, operation: OperationView | None = None) -> None:
        """Report a piece of work. May be called from any thread until `execute` returns.

        Args:
            name: name to display.
            start_ns: time.perf_counter_ns(), or CLOCK_MONOTONIC in C.
            duration_ns: duration of the work.
            operation: the operation whose whole work this was, or None.
        """


class ProfilingContext(ABC):
    """Receiver of all profiled executions of a device: single ones, in bursts, reusable and fenced.

    Since 1.2. Several executions may run at the same time. Errors are logged, and do not affect the execution.
    """

    @abstractmethod
    def begin(self, execution: int) -> None:
        """Run before a profiled execution, even if no part of the model runs on the backend.

        Args:
            execution: number of the execution, which is `Profile.execution` of its parts. It is never reused.
        """

    @abstractmethod
    def end(self, execution: int, profile: Profile) -> None:
        """Run after a profiled execution, even if it failed.

        Args:
            execution: number of the execution.
            profile: receives spans that are not part of a partition, for example of a device's own counters.
        """


class Run(Protocol):
    """One execution, from the view of a backend."""

    @property
    def profile(self) -> Profile | None:
        """Receiver of spans; None if the execution is not profiled (since 1.1)."""

    def check(self) -> None:
        """Check for cancellation. Call it between operations.

        Raises:
            HalError: the deadline has passed, or the execution was cancelled. Do not catch it.
        """

    def defer(self, wait: Callable[[], None]) -> None:
        """Let `execute` return before its outputs are written, for example because a device works on them (1.2).

        Until the wait is over, the execution does not hold its slot, so that others can run. Its inputs stay valid.
        Other threads may write the outputs. A partition on another backend that reads an output waits first.

        Args:
            wait: called once, from any thread, even if `execute` fails afterwards. It returns when the outputs are
                written, or raises as `execute` does. It can call `check` meanwhile.
        """


class Output(Protocol):
    """Destination of one output of a subgraph."""

    @property
    def declared(self) -> tuple[int, ...]:
        """The declared shape; 0 is an unknown dimension, () an unknown rank."""

    def write(self, array: AnyArray | DeviceBuffer, *, keep: bool = False) -> None:
        """Deliver the value. Call it once for each output.

        Args:
            array: value with the dtype of the operand's type, in its final shape; a buffer for an operand in
                `CompiledSubgraph.device_operands`.
            keep: whether the host may keep the value, which must not change any more. Otherwise the host copies it.
        """


@dataclass(frozen=True, slots=True)
class Sections:
    """Contents of the compilation cache for one compiled subgraph.

    Attributes:
        model: the program. It is sealed: `Backend.load` gets exactly these bytes.
        data: constants. Arrays of integers of 32 bits or more, and of booleans, are sealed too. All others keep dtype
            and shape, but may have other values if the file was modified and its digest is not checked. Wrong results
            must be the only consequence.
    """

    model: bytes
    data: tuple[AnyArray, ...] = ()


class CompiledSubgraph(ABC):
    """A subgraph that is ready to run. Several threads call it at the same time, unless it has `resize` or `memory`."""

    memory: MemoryManager | None = None
    """Planner of its memory. The host acquires it before each execution and releases it afterwards. (1.1)"""

    copies_inputs: bool = False
    """True if it copies every input before it reads a value. Otherwise the host copies inputs that a client can
    write to during the execution. (1.1)"""

    layouts: Mapping[int, Relayout] = {}
    """Inputs and outputs that it uses in a layout of its own, by operand. The host converts them where necessary. A
    converted output must have all dimensions declared. (1.1)"""

    device_operands: Mapping[int, DeviceMemory] = {}
    """Inputs and outputs that it uses in memory of the backend, by operand; they are `DeviceBuffer`s then. The host
    copies them only where other backends or the client use them. (1.2)"""

    @abstractmethod
    def execute(self, inputs: Sequence[Any], outputs: Sequence[Output], run: Run) -> None:
        """Run the subgraph.

        Args:
            inputs: a read-only array for each of `SubgraphView.inputs`, or a buffer for an operand in
                `device_operands`; None for an omitted argument.
            outputs: a destination for each of `SubgraphView.outputs`.
            run: the execution that this is part of.

        Raises:
            HalError: the execution fails for these values.
        """

    def save(self) -> Sections | None:
        """Return the sections for `Backend.load` (optional), or None if compiling again is as fast.

        Called at most once, after the compilation and before the first execution.
        """
        return None

    # ---- Hooks (1.1), all optional. An execution calls them in this order: resize_begin, resize, resize_end,
    # execute_begin, execute, wait_finish, execute_end. An _end is called whenever its _begin succeeded, even if a call
    # in between fails.

    def resize_begin(self) -> None:
        """Run before `resize`."""

    def resize(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        """Prepare for new input shapes, for example plan memory.

        Called before the first execution, and before each execution whose inputs have other shapes. A subgraph with
        this hook is executed by one thread at a time. If it fails, the next execution resizes again.

        Args:
            shapes: shapes of the inputs; None for an omitted one.
        """

    def resize_end(self) -> None:
        """Run after `resize`."""

    def execute_begin(self) -> None:
        """Run before `execute`."""

    def execute_end(self) -> None:
        """Run after `execute` and `wait_finish`."""

    def wait_finish(self) -> None:
        """Wait until all outputs are written, if `execute` returns early.

        Not called if `execute` failed or deferred the wait. The execution holds its slot meanwhile; `Run.defer` is the
        alternative for a device that works on its own.
        """


@dataclass(frozen=True, slots=True)
class Substitution:
    """A compiled subgraph that replaces operations.

    Attributes:
        operations: indexes of the replaced operations. No path between two of them may lead through other operations.
        compiled: the replacement, with the inputs and outputs of `SubgraphView.part(operations)`. At a warm start
            `Backend.load` gets its sections with that view. If it saves nothing, the whole subgraph is optimized again.
    """

    operations: tuple[int, ...]
    compiled: CompiledSubgraph


@dataclass(frozen=True, slots=True)
class OptimizedSubgraph:
    """Result of `Backend.optimize`. Operations that it does not mention are compiled as usual.

    Attributes:
        substitutions: replacements for operations.
        failed: reasons, by index, for operations that the backend cannot run after all. If there are any, these
            operations are offered to other backends, the substitutions are dropped, and the rest is optimized again.
    """

    substitutions: tuple[Substitution, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)


class Backend(ABC):
    """A compute backend. Each device has its own object. Several threads call its methods at the same time."""

    id: str
    """Id, unique among backends."""
    version: str
    """Version of the backend itself, part of the device's version string. The host adds a digest of its files."""

    stops_between_operations: bool = True
    """True if a long `execute` calls `Run.check` as it goes. Otherwise the host divides long partitions. (1.2)"""

    device_type: DeviceType = DeviceType.CPU
    """Kind of the hardware: the type of a device whose first backend this is, unless its operator sets one. (1.2)"""

    @abstractmethod
    def supports(self, operation: OperationView) -> Support:
        """Return whether the backend supports an operation. If it does, `compile` must succeed."""

    @abstractmethod
    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Compile a subgraph of supported operations.

        Raises:
            HalError: the subgraph cannot be compiled.
        """

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Create a compiled subgraph from its saved sections (optional).

        Args:
            subgraph: the subgraph that was compiled. Its operations are bound on first access.
            sections: saved by the same version of the same backend. The arrays are read-only. Avoid keeping them after
                this call: each holds the memory of everything that was saved with it.
            options: the options that it was compiled with.

        Raises:
            HalError: the subgraph cannot be loaded.
        """
        return self.compile(subgraph, options)

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Optimize a subgraph as a whole before it is compiled (optional, 1.1). The default changes nothing.

        Raises:
            HalError: the subgraph cannot be compiled.
        """
        return OptimizedSubgraph()

    # ---- Hooks for parts of a network (1.1), all optional. `network` is the number of one compiled subgraph, which is
    # never reused.

    def before_load(self, network: int) -> None:
        """Run before `compile` or `load`. If that fails, `after_unload` is the only other hook for this number."""

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        """Run after `compile` or `load`."""

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        """Run when the compiled subgraph is no longer used. May be called from any thread."""

    def after_unload(self, network: int) -> None:
        """Run when the compiled subgraph is freed, unless the backend kept a reference to it."""

    # ---- Hooks for networks (1.2), all optional. A network is a prepared model. Every backend of the device is told,
    # even if it runs no part of the model. `network` is `CompileOptions.network`, which is never reused. Errors are
    # logged.

    def before_load_network(self, network: int) -> None:
        """Run before anything of a network is optimized, compiled or loaded."""

    def after_load_network(self, network: int) -> None:
        """Run after all parts of a network are compiled or loaded. If that fails, only `after_unload_network` runs."""

    def before_unload_network(self, network: int) -> None:
        """Run before the parts of a network are unloaded, because nothing uses it any more. From any thread."""

    def after_unload_network(self, network: int) -> None:
        """Run after the parts of a network are unloaded."""

    def use_allocator(self, allocator: CustomAllocator) -> Support:
        """Use the allocator of the operator for all memory of tensors (optional, 1.2).

        Called at most once, before anything is compiled. It covers planned blocks, intermediate values and outputs:
        see `allocate_with`. A backend that returns a reason keeps its own memory, and the host tells the operator.
        """
        return Support("it uses memory of its own")

    def create_profiling_context(self) -> ProfilingContext | None:
        """Return an object that the host tells of all profiled executions of the device (optional, 1.2).

        Called at most once, before the first of them.
        """
        return None

    def create_memory_manager(self, options: CompileOptions) -> MemoryManager | None:
        """Return a planner of memory for one subgraph (optional, 1.2).

        The host calls it before `compile` and `load`, which find the planner in `CompileOptions.memory`. If they
        request pieces, the host acquires the block before each execution, unless the result has other `memory`.
        """
        return None

    def close(self) -> None:
        """Free all resources (optional, 1.2).

        Called once, when the device is closed and all networks are unloaded. Not called if the process ends first.
        """

    def fingerprint(self) -> str:
        """Return what else `load` depends on, for example the version of an engine (optional).

        The host adds the version and a digest of the plug-in's Python files, or of its shared object.
        """
        return ""

    def capabilities(self) -> Mapping[str, bool]:
        """Return named properties (optional)."""
        return {}

    def hardware(self) -> Mapping[str, str]:
        """Return what operators want to know of its hardware, for example its driver: values by name (optional, 1.2).

        The host reads it once, after the creation of the backend. `nnhal info` shows it. The value of "adapter" is the
        name by which clients of a fleet may ask for this hardware.
        """
        return {}

    def memory_bytes(self) -> int:
        """Return the bytes that its models use in memory of its hardware, which is not the machine's (optional, 1.2).

        Called for each snapshot of the metrics.
        """
        return 0

    def extensions(self) -> Sequence[Extension]:
        """Return the vendor extensions with operations that it supports (optional)."""
        return ()

    def performance(self) -> PerformanceInfo:
        """Return the time and power of typical models relative to CpuRef; lower is better (optional).

        The host measures the time of each operand type with small models. A stated time other than 1.0 scales these
        figures, so that their geometric mean is the stated one. Power cannot be measured, and is proportional to time.
        """
        return PerformanceInfo(1.0, 1.0)
