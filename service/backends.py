"""The backends of a service's devices: what its settings ask for, and what a client is told of it."""

from driver.backends import dynamic, registry
from driver.backends.report import Report, State
from nnhal.v1 import device_pb2
from service.settings import Settings

_STATES = {
    State.READY: device_pb2.BACKEND_STATE_READY,
    State.SKIPPED: device_pb2.BACKEND_STATE_SKIPPED,
    State.FAILED: device_pb2.BACKEND_STATE_FAILED,
}


def find(settings: Settings) -> registry.Found:
    """The dynamic backends, looked for once for all devices."""
    return dynamic.find(settings.dynamic_backends_path)


def assemble(settings: Settings, found: registry.Found) -> registry.Assembly:
    """The backends of one device, made for it alone.

    Where the settings name none, the dynamic ones come first, in the order in which they were found.

    Raises:
        ValueError: a backend is unknown or listed twice, or none can be used.
    """
    named = "backends" in settings.model_fields_set
    first = () if named else tuple(one.id for one in found.registrations)
    return registry.assemble((*first, *settings.backends), found)


def report_message(report: Report) -> device_pb2.BackendInfo:
    """A report as clients get it."""
    return device_pb2.BackendInfo(
        id=report.id,
        version=report.version,
        state=_STATES[report.state],
        reason=report.reason,
        origin=report.origin,
        api_version=report.api_version,
        capabilities=report.capabilities,
    )
