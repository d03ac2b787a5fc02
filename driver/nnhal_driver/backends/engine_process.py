"""Engines in processes of their own, as backends see them: a deadline ends one, and its death ends one execution.

The hosting provides the processes. Without them, engines run in the process of the device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from nnhal.types import AnyArray
from nnhal_driver.operations.call import Shape

PROCESS_BYTES = 32 * 2**20
"""Memory that a process may allocate besides that of its model. With a small model, it has 5 MiB of its own."""

Check = Callable[[], None]
"""Raises a HalError if the work must end."""


class EngineDiedError(RuntimeError):
    """The process of an engine has ended: its model crashed it, or it was killed."""


class Engine(Protocol):
    """An interpreter of a model. It serves one call at a time.

    Attributes:
        reservation: that of its memory.
        threads: number of threads for one call.
    """

    reservation: object
    threads: int

    def write(self, tensor: int, value: AnyArray) -> None:
        """Set the value of an input, which has its shape."""

    def view(self, tensor: int) -> AnyArray:
        """Return the value of an input or output, which may change with the next call."""

    def resize(self, shapes: Mapping[int, Shape], check: Check) -> None:
        """Set the shapes of inputs.

        Raises:
            RuntimeError: the model does not take these.
            HalError: raised by `check`.
        """

    def reset_variables(self) -> None:
        """Set the variables of operators to zero, as before the first execution. Inputs may be variables."""

    def invoke(self, check: Check) -> None:
        """Run the model.

        Raises:
            RuntimeError: an operator failed, or EngineDiedError.
            HalError: raised by `check`. An engine in a process of its own ends with it.
        """


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A model for an engine.

    Attributes:
        backend: id of its backend.
        engine: name of the class of its engine, "module:class". It takes the path of the file and the number of
            threads.
        file: a descriptor of its file, which the caller closes.
        inputs, outputs: numbers of its tensors.
        threads: number of threads for one call.
        size: bytes that the process may allocate.
        shared: bytes of its inputs and outputs at most, in memory that it shares with the caller.
    """

    backend: str
    engine: str
    file: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    threads: int
    size: int
    shared: int


class EngineLauncher(Protocol):
    """Launcher of engines in processes of their own. Thread safe."""

    def launch(self, model: EngineModel, check: Check) -> Engine:
        """Return an engine whose process ends with it.

        Raises:
            RuntimeError: the engine rejects the model, or cannot allocate its tensors; or EngineDiedError.
            HalError: raised by `check`, which is called while the process starts.
        """


@dataclass(frozen=True, slots=True)
class EngineHosting:
    """Hosting of engines.

    Attributes:
        launcher: launches processes; None if there are none.
        is_shared: whether the process of the device serves several owners of models. It must not run what a model
            contains for the engine without knowing that it is harmless.
    """

    launcher: EngineLauncher | None = None
    is_shared: bool = False


@runtime_checkable
class HostedBackend(Protocol):
    """A built-in backend that can run its engine in other processes."""

    hosting: EngineHosting
    """Set by the device, before it uses the backend."""
