"""Servicer of the administration: nnhal.admin.v1."""

import functools
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import grpc

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal_service import log
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.recording.rules import RecordingRules, ShadowRules

_READS = ("GetSnapshot", "ListSettings", "GetMetrics")
"""Methods that change nothing, which programs may call every second."""
_READ_NOTE_S = 60.0
"""Seconds between two lines of the audit log on the same method and caller."""
_MAX_READERS = 1000

Authorize = Callable[[grpc.ServicerContext], str]
"""Returns who calls. Raises PermissionError if the caller may not administer."""

T = TypeVar("T")
_Names: TypeAlias = tuple[str, ...]


def _authorized(method: Callable[..., T]) -> Callable[..., T]:
    """Wrap a method: it gets who calls in place of the context, and its errors become statuses of gRPC."""

    @functools.wraps(method)
    def call(self: "AdminServicer", request: Any, context: grpc.ServicerContext) -> T:
        try:
            by = self.authorize(context)
        except PermissionError as error:
            log.audit(method.__name__, by=str(error), result="denied")
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{error} may not administer this service")
        if method.__name__ in _READS:
            self.note_read(method.__name__, by)
        try:
            return method(self, request, by)
        except AdminError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError("abort raises")

    return call


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Servicer of Admin."""

    def __init__(self, view: ServiceView, authorize: Authorize) -> None:
        self._view = view
        self.authorize = authorize
        self._reads: dict[tuple[str, str], float] = {}

    def note_read(self, method: str, by: str) -> None:
        """Write a call that changes nothing to the audit log, if it is the first one of its caller for a while."""
        now = time.monotonic()
        if now - self._reads.get((method, by), -_READ_NOTE_S) < _READ_NOTE_S:
            return
        if len(self._reads) >= _MAX_READERS:
            self._reads.clear()
        self._reads[method, by] = now
        log.audit(method, by=by, result="ok")

    @_authorized
    def GetSnapshot(self, request: admin_pb2.GetSnapshotRequest, by: str) -> admin_pb2.GetSnapshotResponse:
        """Return the state."""
        return admin_pb2.GetSnapshotResponse(snapshot=self._view.snapshot())

    @_authorized
    def ListSettings(self, request: admin_pb2.ListSettingsRequest, by: str) -> admin_pb2.ListSettingsResponse:
        """Return the effective settings."""
        return admin_pb2.ListSettingsResponse(settings=self._view.settings())

    @_authorized
    def GetMetrics(self, request: admin_pb2.GetMetricsRequest, by: str) -> admin_pb2.GetMetricsResponse:
        """Return the metrics."""
        return admin_pb2.GetMetricsResponse(text=self._view.metrics()[0].decode())

    @_authorized
    def GetStacks(self, request: admin_pb2.GetStacksRequest, by: str) -> admin_pb2.GetStacksResponse:
        """Return the stacks of all threads."""
        return admin_pb2.GetStacksResponse(stacks=self._view.stacks(by, _worker(request)))

    @_authorized
    def Drain(self, request: admin_pb2.DrainRequest, by: str) -> admin_pb2.DrainResponse:
        """Have workers take no more sessions."""
        return admin_pb2.DrainResponse(result=self._view.drain(by, _worker(request)))

    @_authorized
    def Resume(self, request: admin_pb2.ResumeRequest, by: str) -> admin_pb2.ResumeResponse:
        """Undo Drain."""
        return admin_pb2.ResumeResponse(result=self._view.resume(by, _worker(request)))

    @_authorized
    def Reload(self, request: admin_pb2.ReloadRequest, by: str) -> admin_pb2.ReloadResponse:
        """Replace the workers one by one."""
        result, needs_restart = self._view.reload(by)
        return admin_pb2.ReloadResponse(result=result, needs_restart=needs_restart)

    @_authorized
    def EndSession(self, request: admin_pb2.EndSessionRequest, by: str) -> admin_pb2.EndSessionResponse:
        """End a session at once."""
        return admin_pb2.EndSessionResponse(result=self._view.end_session(by, request.session))

    @_authorized
    def ClearQuarantine(self, request: admin_pb2.ClearQuarantineRequest, by: str) -> admin_pb2.ClearQuarantineResponse:
        """Allow models again."""
        return admin_pb2.ClearQuarantineResponse(result=self._view.clear_quarantine(by, request.digests))

    @_authorized
    def ClearCache(self, request: admin_pb2.ClearCacheRequest, by: str) -> admin_pb2.ClearCacheResponse:
        """Remove entries of the cache."""
        identity = request.identity if request.HasField("identity") else None
        return admin_pb2.ClearCacheResponse(result=self._view.clear_cache(by, identity, request.tokens))

    @_authorized
    def SetLogLevel(self, request: admin_pb2.SetLogLevelRequest, by: str) -> admin_pb2.SetLogLevelResponse:
        """Change the severity from which on all processes log."""
        return admin_pb2.SetLogLevelResponse(result=self._view.set_log_level(by, request.level))

    @_authorized
    def SetRecording(self, request: admin_pb2.SetRecordingRequest, by: str) -> admin_pb2.SetRecordingResponse:
        """Start or stop the recording of executions."""
        rules = RecordingRules(request.share, *_chosen(request), not request.without_values)
        return admin_pb2.SetRecordingResponse(result=self._view.set_rules(by, rules))

    @_authorized
    def SetShadow(self, request: admin_pb2.SetShadowRequest, by: str) -> admin_pb2.SetShadowResponse:
        """Start or stop the repetition of executions on the shadow."""
        rules = ShadowRules(request.share, *_chosen(request))
        return admin_pb2.SetShadowResponse(result=self._view.set_rules(by, rules))


def _chosen(request: admin_pb2.SetRecordingRequest | admin_pb2.SetShadowRequest) -> tuple[_Names, _Names, _Names]:
    """Return the identities, models and devices of rules."""
    return tuple(request.identities), tuple(request.models), tuple(request.devices)


def _worker(request: admin_pb2.GetStacksRequest | admin_pb2.DrainRequest | admin_pb2.ResumeRequest) -> int | None:
    return request.worker if request.HasField("worker") else None
