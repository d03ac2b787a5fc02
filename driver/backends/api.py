"""The Backend interface: the only module that the author of a backend must read.

A backend says, operation by operation, whether it takes it, and compiles the subgraphs that placement gives it. The
version is (major, minor): a new minor only adds what has a default here, so older backends keep working; a new major
may break them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driver.graph import Graph, OperationView, SubgraphView
from driver.operations.shape import MAX_TENSOR_BYTES
from nnhal.types import AnyArray, Extension, PerformanceInfo

__all__ = [
    "API_VERSION",
    "Backend",
    "CompileOptions",
    "CompiledSubgraph",
    "Graph",
    "OperationView",
    "Output",
    "Run",
    "Sections",
    "SubgraphView",
    "Support",
]

API_VERSION = (1, 0)


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


class Run(Protocol):
    """One execution, as far as a backend must know it."""

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
    """A subgraph that is ready to run. Called from several threads at once."""

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
