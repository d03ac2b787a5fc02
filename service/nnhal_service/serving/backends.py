"""Backends of the devices: their assembly from the settings, and their report to clients."""

from collections.abc import Mapping
from dataclasses import dataclass

from nnhal.types import DeviceType
from nnhal.v1 import device_pb2
from nnhal_driver.backends import registry
from nnhal_driver.backends.options import OptionError
from nnhal_driver.backends.plugins import search
from nnhal_driver.backends.report import CandidateState, Report
from nnhal_service.settings import Settings, default_backend_folders, split_device

_STATES = {
    CandidateState.READY: device_pb2.BACKEND_STATE_READY,
    CandidateState.SKIPPED: device_pb2.BACKEND_STATE_SKIPPED,
    CandidateState.FAILED: device_pb2.BACKEND_STATE_FAILED,
}


@dataclass(frozen=True)
class DeviceSettings:
    """Settings of one device.

    Attributes:
        backends: ids of its own backends, in order; None for those of all devices.
        type: the type that it reports; None for that of its first backend.
        options: options of its backends, by id and key.
    """

    name: str
    backends: tuple[str, ...] | None
    type: DeviceType | None
    options: Mapping[str, Mapping[str, str]]


def device_settings(settings: Settings) -> tuple[DeviceSettings, ...]:
    """Return the settings of each device, in order."""
    devices = []
    for text in settings.devices:
        name, backends = split_device(text)
        options = {id_: dict(values) for id_, values in settings.backend_options.items() if "/" not in id_}
        for key, values in settings.backend_options.items():
            device, _, id_ = key.rpartition("/")
            if device == name:
                options.setdefault(id_, {}).update(values)
        type_ = settings.device_types.get(name)
        devices.append(DeviceSettings(name, backends, DeviceType[type_] if type_ else None, options))
    return tuple(devices)


def find_dynamic(settings: Settings) -> registry.SearchResult:
    """Search for dynamic backends, once for all devices.

    Raises:
        ValueError: a backend rejects an option, or there is no backend for an option.
    """
    is_default = settings.dynamic_backends_path == default_backend_folders()
    option_sets = [device.options for device in device_settings(settings)]
    found = search.find(settings.dynamic_backends_path, is_default=is_default, option_sets=option_sets)
    failed = {report.id for report in found.reports if report.state is CandidateState.FAILED}
    known = [*registry.registered_ids(), *(registration.id for registration in found.registrations)]
    for name, values in settings.backend_options.items():
        id_ = name.rpartition("/")[2]
        if id_ not in known and not failed & {id_, ""}:  # a candidate without an id may be the one
            first = next(iter(values), "")
            raise ValueError(
                f"--backend-option {name}.{first}: there is no backend {id_!r}; there are {', '.join(known)}"
            )
    return found


def assemble(settings: Settings, found: registry.SearchResult, device: DeviceSettings) -> registry.Assembly:
    """Create the backends of one device.

    If the settings name no backends, the dynamic ones come first, in the order in which they were found.

    Raises:
        ValueError: a backend is unknown or listed twice, rejects an option, or none can be used.
    """
    if device.backends is not None:
        try:
            return registry.assemble(device.backends, found, device.options)
        except OptionError:
            raise
        except ValueError as error:
            raise ValueError(f"--device {device.name}: {error}") from error
    dynamic = (
        ()
        if "backends" in settings.model_fields_set
        else tuple(registration.id for registration in found.registrations)
    )
    return registry.assemble((*dynamic, *settings.backends), found, device.options)


def report_message(report: Report, quarantined_models: int) -> device_pb2.BackendInfo:
    """Return the report on a backend as a message."""
    return device_pb2.BackendInfo(
        id=report.id,
        version=report.version,
        state=_STATES[report.state],
        reason=report.reason,
        origin=report.origin,
        api_version=report.api_version,
        capabilities=report.capabilities,
        quarantined_models=quarantined_models,
        hardware=report.hardware,
    )
