"""Backends of the devices: their assembly from the settings, and their report to clients."""

from nnhal.v1 import device_pb2
from nnhal_driver.backends import registry
from nnhal_driver.backends.plugins import search
from nnhal_driver.backends.report import CandidateState, Report
from nnhal_service.settings import Settings

_STATES = {
    CandidateState.READY: device_pb2.BACKEND_STATE_READY,
    CandidateState.SKIPPED: device_pb2.BACKEND_STATE_SKIPPED,
    CandidateState.FAILED: device_pb2.BACKEND_STATE_FAILED,
}


def find_dynamic(settings: Settings) -> registry.SearchResult:
    """Search for dynamic backends, once for all devices."""
    is_default = "dynamic_backends_path" not in settings.model_fields_set
    return search.find(settings.dynamic_backends_path, is_default=is_default)


def assemble(settings: Settings, found: registry.SearchResult) -> registry.Assembly:
    """Create the backends of one device.

    If the settings name no backends, the dynamic ones come first, in the order in which they were found.

    Raises:
        ValueError: a backend is unknown or listed twice, or none can be used.
    """
    dynamic = (
        ()
        if "backends" in settings.model_fields_set
        else tuple(registration.id for registration in found.registrations)
    )
    return registry.assemble((*dynamic, *settings.backends), found)


def report_message(report: Report) -> device_pb2.BackendInfo:
    """Return the report on a backend as a message."""
    return device_pb2.BackendInfo(
        id=report.id,
        version=report.version,
        state=_STATES[report.state],
        reason=report.reason,
        origin=report.origin,
        api_version=report.api_version,
        capabilities=report.capabilities,
    )
