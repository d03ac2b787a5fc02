"""Options of a device, and the parts of its process that it uses."""

from collections.abc import Collection
from dataclasses import dataclass, field

from nnhal.types import DeviceType
from nnhal_driver.activity import ActivityTable
from nnhal_driver.backends.allocators import CustomAllocator
from nnhal_driver.backends.boundary.isolation import DEFAULT_TIMEOUT_S
from nnhal_driver.backends.engine_process import EngineHosting
from nnhal_driver.execution.buffer_table import LiveBuffers
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.quarantine import ModelProbe, NoQuarantine, Quarantine
from nnhal_driver.scheduling.scheduler import QueueLimits


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Options of the model cache of a device.

    Attributes:
        key: secret key that seals cache files. Without one, only the device itself can load the files that it saves.
        check_data: whether to check the digest of data caches. Without the check, a changed file may give wrong
            results.
        unusable: why the device does not cache models, or "".
    """

    key: bytes | None = None
    check_data: bool = True
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Options of a device.

    Attributes:
        queues: maximum lengths of the queues.
        tensor_bytes: maximum size of a tensor in an execution.
        merge_partitions: whether a partition that does not pay for its boundary moves to the backend of a neighbor.
        disabled_extensions: names of extensions of the backends that the device does not support.
        type: type to report; None for that of the first backend, which is the preferred one.
        backend_timeout_s: seconds that a plug-in has for one call.
    """

    queues: QueueLimits = field(default_factory=QueueLimits)
    tensor_bytes: int = MAX_TENSOR_BYTES
    merge_partitions: bool = True
    disabled_extensions: Collection[str] = ()
    type: DeviceType | None = None
    cache: CacheOptions = CacheOptions()
    backend_timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class DeviceHost:
    """Parts of a process that its devices share.

    Attributes:
        buffers: the buffers of all devices, so that no two buffers have the same token.
        activities: table of the work in progress; None if it is not recorded.
        quarantine: the models that have crashed a process like this.
        prober: prepares and runs new models in another process first; None to trust them.
        engines: where built-in backends run their engines.
    """

    performance: PerformanceStore = field(default_factory=PerformanceStore)
    buffers: LiveBuffers = field(default_factory=LiveBuffers)
    allocator: CustomAllocator | None = None
    activities: ActivityTable | None = None
    quarantine: Quarantine = field(default_factory=NoQuarantine)
    prober: ModelProbe | None = None
    engines: EngineHosting = field(default_factory=EngineHosting)
