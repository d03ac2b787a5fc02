"""Backend that misbehaves in chosen methods, and the exceptions that a backend may raise."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from nnhal.errors import HalError, SessionLostError
from nnhal.types import AnyArray, ErrorKind, ErrorStatus, Extension, PerformanceInfo
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    OptimizedSubgraph,
    Output,
    Run,
    Sections,
    SubgraphView,
    Support,
)
from nnhal_driver.backends.memory import MemoryManager
from tests.driver.one_operation import model_of, tensor

X = tensor(T.TENSOR_FLOAT32, (2,))
MODEL = model_of(Op.RELU, [(X, 0)], [X], constants=False)

DEFAULT = object()
"""Result of an act after which the method does what it does without one."""

Acts = dict[str, Callable[[], Any]]
"""Functions by the name of the method in whose place they run."""


def raises(create: Callable[[], BaseException]) -> Callable[[], NoReturn]:
    """Return a function that raises a new exception each time."""

    def act() -> NoReturn:
        raise create()

    return act


def returns(value: object) -> Callable[[], object]:
    """Return a function that returns a value."""
    return lambda: value


class Unprintable(Exception):
    """Exception whose text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("from __str__")


class Uninitialized(HalError):
    """HalError without any of its attributes."""

    def __init__(self) -> None:
        pass


def with_attributes(**attributes: object) -> HalError:
    """Return a HalError whose attributes were set afterwards."""
    error = HalError(ErrorStatus.GENERAL_FAILURE, "a reason")
    vars(error).update(attributes)
    return error


EXCEPTIONS: Mapping[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "RecursionError": RecursionError,
    "unprintable": Unprintable,
    "surrogates": lambda: ValueError("\udcff"),
    "status NONE": lambda: HalError(ErrorStatus.NONE, "a reason"),
    "status OUTPUT_INSUFFICIENT_SIZE": lambda: HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "a reason"),
    "unknown status": lambda: with_attributes(status=99),
    "status of no type": lambda: with_attributes(status=["2"]),
    "reason of no type": lambda: with_attributes(reason=7),
    "unknown kind": lambda: with_attributes(kind=99),
    "kind of a session": lambda: with_attributes(kind=ErrorKind.SESSION_LOST),
    "lost session": lambda: SessionLostError(ErrorStatus.GENERAL_FAILURE, "a reason", kind=ErrorKind.SESSION_LOST),
    "uninitialized": Uninitialized,
}
"""Functions that create exceptions which no backend should raise. Each becomes a GENERAL_FAILURE."""


class Hostile(Backend):
    """Backend that copies its input, except in methods with an act.

    Attributes:
        acts: functions by the name of the method in whose place they run.
    """

    id = "Hostile"
    version = "1"

    def __init__(self, acts: Acts | None = None) -> None:
        self.acts = acts or {}

    def act(self, name: str, default: object = None) -> Any:
        """Run the act of a method; without one, return a default."""
        act = self.acts.get(name)
        result = DEFAULT if act is None else act()
        return default if result is DEFAULT else result

    def supports(self, operation: OperationView) -> Support:
        """Support everything."""
        support: Support = self.act("supports", Support())
        return support

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Change nothing."""
        optimized: OptimizedSubgraph = self.act("optimize", OptimizedSubgraph())
        return optimized

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Return a subgraph that copies its input."""
        compiled: CompiledSubgraph = self.act("compile", HostileSubgraph(self))
        return compiled

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Return a subgraph that copies its input."""
        compiled: CompiledSubgraph = self.act("load", HostileSubgraph(self))
        return compiled

    def before_load(self, network: int) -> None:
        """Do nothing."""
        self.act("before_load")

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        """Do nothing."""
        self.act("after_load")

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        """Do nothing."""
        self.act("before_unload")

    def after_unload(self, network: int) -> None:
        """Do nothing."""
        self.act("after_unload")

    def before_load_network(self, network: int) -> None:
        """Do nothing."""
        self.act("before_load_network")

    def after_load_network(self, network: int) -> None:
        """Do nothing."""
        self.act("after_load_network")

    def before_unload_network(self, network: int) -> None:
        """Do nothing."""
        self.act("before_unload_network")

    def after_unload_network(self, network: int) -> None:
        """Do nothing."""
        self.act("after_unload_network")

    def create_memory_manager(self, options: CompileOptions) -> MemoryManager | None:
        """Return no planner."""
        manager: MemoryManager | None = self.act("create_memory_manager")
        return manager

    def close(self) -> None:
        """Do nothing."""
        self.act("close")

    def fingerprint(self) -> str:
        """Return a constant."""
        fingerprint: str = self.act("fingerprint", "f")
        return fingerprint

    def capabilities(self) -> Mapping[str, bool]:
        """Return one capability."""
        capabilities: Mapping[str, bool] = self.act("capabilities", {"Quiet": True})
        return capabilities

    def memory_bytes(self) -> int:
        """Return some bytes."""
        used: int = self.act("memory_bytes", 1000)
        return used

    def hardware(self) -> Mapping[str, str]:
        """Return one fact."""
        hardware: Mapping[str, str] = self.act("hardware", {"color": "quiet"})
        return hardware

    def extensions(self) -> Sequence[Extension]:
        """Return one extension."""
        extensions: Sequence[Extension] = self.act("extensions", (Extension("com.example.quiet"),))
        return extensions

    def performance(self) -> PerformanceInfo:
        """Return the performance of the CPU."""
        performance: PerformanceInfo = self.act("performance", PerformanceInfo(1.0, 1.0))
        return performance


class HostileSubgraph(CompiledSubgraph):
    """Subgraph that copies its input, except in methods with an act."""

    def __init__(self, backend: Hostile) -> None:
        self.backend = backend

    def resize_begin(self) -> None:
        """Do nothing."""
        self.backend.act("resize_begin")

    def resize(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        """Do nothing."""
        self.backend.act("resize")

    def resize_end(self) -> None:
        """Do nothing."""
        self.backend.act("resize_end")

    def execute_begin(self) -> None:
        """Do nothing."""
        self.backend.act("execute_begin")

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Copy the input."""
        write = self.backend.act("execute")
        if write is not None:
            write(inputs, outputs)
        elif inputs[0] is not None:
            outputs[0].write(inputs[0])

    def wait_finish(self) -> None:
        """Do nothing."""
        self.backend.act("wait_finish")

    def execute_end(self) -> None:
        """Do nothing."""
        self.backend.act("execute_end")

    def save(self) -> Sections | None:
        """Return an empty program."""
        sections: Sections | None = self.backend.act("save", Sections(b"program"))
        return sections
