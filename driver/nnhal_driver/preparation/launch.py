"""Launches of preparations: what a device needs to know of a call, of its model and of the options."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from nnhal.types import ExecutionPreference, ExtensionNameAndPrefix, Model, Priority, TokenValuePair
from nnhal_driver.execution.buffer import ReserveMemory, reserve_nothing
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_driver.preparation.outcome import PreparationCallback
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_driver.scheduling.preparation import Check
from nnhal_driver.scheduling.work_times import WorkTimes


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """Call of a device, and the client on whose behalf the device works.

    Attributes:
        owner: the client; owners are served fairly.
        client: digest of the client, for the table of activities; b"" if it is unknown.
        reserve: reserves the memory of a model, as estimated, until the model is freed; raises to reject it.
    """

    deadline: Deadline = NO_DEADLINE
    owner: Hashable = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    reserve: ReserveMemory = reserve_nothing
    times: WorkTimes = field(default_factory=WorkTimes)
    client: bytes = b""


class ModelReader(Protocol):
    """Reader of a model, which a device calls on the thread of its caller when it may analyse the model."""

    @property
    def size(self) -> int:
        """Number of operands and arguments of the model, or of a part of it that is large already."""

    def read(self, check: Check) -> "GivenModel":
        """Return the model. Called once at most. A long reader calls `check` between its steps.

        Raises:
            HalError: the call is invalid; or what `check` raises.
        """


@dataclass(frozen=True, slots=True)
class GivenModel:
    """Model, and what a preparation of it needs. It is a reader too, of a model that is there already.

    Attributes:
        digest: digest of the model, see `nnhal.model_digest`; b"" if it is unknown.
        cache: files to save to, whose descriptors may be closed once the launch has ended; None to save nothing.
    """

    model: Model
    digest: bytes = b""
    cache: CacheFiles | None = None

    @property
    def size(self) -> int:
        """Number of operands and arguments of the model."""
        return sum(
            len(graph.operands) + sum(len(each.inputs) + len(each.outputs) for each in graph.operations)
            for graph in self.model.subgraphs
        )

    def read(self, check: Check) -> "GivenModel":
        """Return this object."""
        return self


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Options of a preparation from a model: those of PrepareModelConfig, without the deadline and the cache files."""

    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM
    hints: tuple[TokenValuePair, ...] = ()
    extensions: tuple[ExtensionNameAndPrefix, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparationLaunch:
    """Launch of a preparation from a model.

    Attributes:
        reader: reads the model. Files to save to never make a preparation fail (V-PREP-04): problems become warnings.
    """

    reader: ModelReader
    callback: PreparationCallback
    call: DeviceCall = field(default_factory=DeviceCall)
    options: LaunchOptions = LaunchOptions()
