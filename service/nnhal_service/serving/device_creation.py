"""Creation of the devices of a service with their backends, as the settings say."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import extensions
from nnhal_driver.backends.report import Report
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceHost, DeviceOptions
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.scheduling.scheduler import QueueLimits
from nnhal_service.serving.allocation import create_allocator, with_allocator
from nnhal_service.serving.backends import assemble, device_settings, find_dynamic
from nnhal_service.serving.hosting import Hosting
from nnhal_service.sessions.limits import Limits
from nnhal_service.settings import Settings


def create_devices(
    settings: Settings, limits: Limits, hosting: Hosting, key: bytes | None, cache_unusable: str
) -> tuple[Sequence[Device], Mapping[str, Sequence[Report]]]:
    """Create the devices, with the key that seals cached models, or the reason for which there is no cache.

    Returns:
        the devices, which the caller closes; and the candidates for their backends, by name of the device.

    Raises:
        ValueError: a backend or an extension is unknown, or a device has no backend that can be used.
    """
    queues = QueueLimits(limits["queued_preparations"], limits["queued_executions"])
    host = DeviceHost(
        PerformanceStore(settings.state_dir),
        allocator=create_allocator(settings.allocator),
        activities=hosting.activities,
        quarantine=hosting.quarantine,
        prober=hosting.prober,
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
