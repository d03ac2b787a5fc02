"""The devices of a service: their creation with their backends and allocator, as the settings say, and their names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from nnhal.errors import invalid_argument
from nnhal_driver.backends.allocators import MemorySource, PageAllocator
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import extensions
from nnhal_driver.backends.engine_process import EngineHosting
from nnhal_driver.backends.report import CandidateState, Report
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceHost, DeviceOptions
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.scheduling.scheduler import QueueLimits
from nnhal_service.serving.backends import assemble, device_settings, find_dynamic
from nnhal_service.serving.hosting import Hosting
from nnhal_service.sessions.limits import Limits
from nnhal_service.settings import Settings

_SOURCES: Mapping[str, MemorySource] = {"huge-pages": MemorySource.HUGE_PAGES, "locked": MemorySource.LOCKED}


class Devices:
    """Looks up devices by the names that clients use. The first device is the default."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = {device.name: device for device in devices}
        self._default = devices[0]

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    @property
    def names(self) -> list[str]:
        """Names of the devices, the default first."""
        return list(self._devices)

    def label(self, name: str) -> str:
        """Return the name of the device that a client means, or "" if there is none."""
        return (name or self._default.name) if not name or name in self._devices else ""

    def get(self, name: str) -> Device:
        """Return the device with a name; the default for "".

        Raises:
            HalError: INVALID_ARGUMENT: there is no such device.
        """
        device = self._devices.get(name) if name else self._default
        if device is None:
            raise invalid_argument(f"there is no device {name!r}; expected one of {', '.join(self._devices)}")
        return device


def create_devices(
    settings: Settings, limits: Limits, hosting: Hosting, key: bytes | None, cache_unusable: str
) -> tuple[Sequence[Device], Mapping[str, Sequence[Report]]]:
    """Create the devices, with the key that seals cached models, or the reason for which there is no cache.

    Return them, for the caller to close, and the candidates for their backends by name of the device.

    Raises:
        ValueError: a backend or an extension is unknown, or a device has no backend that can be used.
    """
    queues = QueueLimits(limits["queued_preparations"], limits["queued_executions"])
    source = _SOURCES.get(settings.allocator)  # backends choose the default one
    host = DeviceHost(
        PerformanceStore(settings.state_dir),
        allocator=PageAllocator(source) if source is not None else None,
        activities=hosting.activities,
        quarantine=hosting.quarantine,
        prober=hosting.prober,
        engines=EngineHosting(hosting.engines, hosting.is_shared),
    )
    dynamic_backends = find_dynamic(settings)
    devices: list[Device] = []
    reports: dict[str, Sequence[Report]] = {}
    with ExitStack() as unused, ExitStack() as undo:
        assemblies = [
            (form, unused.enter_context(closing(assemble(settings, dynamic_backends, form))))
            for form in device_settings(settings)
        ]
        for form, assembly in assemblies:
            options = DeviceOptions(
                queues,
                limits["tensor_bytes"],
                settings.merge_partitions,
                _extension_names(settings.disabled_extensions, assembly.backends),
                form.type,
                CacheOptions(key, unusable=cache_unusable),
                settings.backend_timeout_s,
            )
            device = Device(form.name, assembly.backends, options, host)
            undo.callback(device.close)
            devices.append(device)
            reports[form.name] = with_allocator(assembly.reports, device.allocator_refusals)
        undo.pop_all()
    return devices, reports


def _extension_names(disabled: Sequence[str], backends: Sequence[Backend]) -> list[str]:
    """Return the full names of extensions, which may be given by their last part."""
    offered = [extension.name for backend in backends for extension in extensions(backend)]
    for name in disabled:
        if not any(name in (full, full.rpartition(".")[2]) for full in offered):
            known = ", ".join(dict.fromkeys(offered)) or "none"
            raise ValueError(f"--no-extension {name!r}: no backend has this extension; they have {known}")
    return [full for full in offered if full in disabled or full.rpartition(".")[2] in disabled]


def with_allocator(reports: Iterable[Report], refusals: Mapping[str, str]) -> tuple[Report, ...]:
    """Return reports that tell whether each backend uses the allocator of the settings, and why not.

    `refusals` has the reason, or "", by id; it is empty without an allocator.
    """
    return tuple(
        replace(
            report,
            reason=f"it does not use the allocator: {refusals[report.id]}" if refusals[report.id] else "",
            capabilities={**report.capabilities, "CustomAllocator": not refusals[report.id]},
        )
        if report.state is CandidateState.READY and report.id in refusals
        else report
        for report in reports
    )
