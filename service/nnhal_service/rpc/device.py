"""Device: IDevice over the contract."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import grpc
from google.protobuf.message import Message

from nnhal import wire
from nnhal.errors import HalError
from nnhal.types import HAL_HASH, HAL_VERSION, OMITTED
from nnhal.v1 import device_pb2, device_pb2_grpc, types_pb2
from nnhal_driver.backends.report import Report
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.launch import DeviceCall, LaunchOptions, PreparationLaunch
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.quarantine import Quarantine
from nnhal_driver.scheduling.deadline import Deadline, now_ns
from nnhal_service.grpc_support.call_context import call_deadline, cancellation_of, earliest, field_or_omitted
from nnhal_service.grpc_support.errors import internal_error
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.response_stream import ResponseStream, Send
from nnhal_service.identity.accounts import permission_denied
from nnhal_service.log import event
from nnhal_service.metrics.calls import MeteredCall, ModelLabels, mark_counted
from nnhal_service.metrics.preparations import PreparationMeter
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.model_cache.cache_arguments import CacheArguments, PendingSave
from nnhal_service.model_cache.preloader import ModelPreloader
from nnhal_service.request_id import carry
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.preparation import PreparationStream, Stream, reject_preparation
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.serving.backends import report_message
from nnhal_service.serving.devices import Devices
from nnhal_service.sessions.memory_quota import ARGUMENT_BYTES, Reservation
from nnhal_service.sessions.received_model import ReceivedModel, ReceivedModelReader
from nnhal_service.sessions.session import Session

PrepareRequest = device_pb2.PrepareModelRequest | device_pb2.PrepareModelWithConfigRequest
_NAME_LENGTH = 100
"""Characters of a name that are kept."""


def _reject_launch(error: HalError, context: grpc.ServicerContext, send: Send[device_pb2.PrepareModelEvent]) -> None:
    """Report a launch whose request was rejected before it was decoded."""
    reject_preparation(ResponseStream(context, send), error, context)


class DeviceServicer(ServicerBase, device_pb2_grpc.DeviceServicer):
    """Servicer of Device."""

    def __init__(
        self,
        parts: ServiceParts,
        devices: Devices,
        executor: Executor,
        reports: Mapping[str, Sequence[Report]],
        cache_arguments: CacheArguments,
        preloader: ModelPreloader,
        quarantine: Quarantine,
        metrics: WorkerMetrics,
    ) -> None:
        super().__init__(parts)
        self._metrics = metrics
        self._devices = devices
        self._quarantine = quarantine
        self._preloader = preloader
        self._cache_arguments = cache_arguments
        self._reports = reports
        self._executor = executor
        self._models = ReceivedModelReader()

    @handler()
    def ListDevices(
        self, request: device_pb2.ListDevicesRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListDevicesResponse:
        """Return the names of the devices, the default first."""
        return device_pb2.ListDevicesResponse(devices=self._devices.names)

    @handler()
    def ListBackends(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListBackendsResponse:
        """Return all candidates: the device's backends in order, then the unused ones."""
        reports = self._reports[self._devices.get(request.device).name]
        # a number of all identities' models is for operators only
        may_count = self._sessions.authentication.may_count_others(context)
        backends = (report_message(report, self._quarantine.count(report.id) if may_count else 0) for report in reports)
        return device_pb2.ListBackendsResponse(backends=backends)

    @handler()
    def GetInterfaceVersion(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        """Return version and hash of the HAL interface."""
        self._devices.get(request.device)
        return device_pb2.GetInterfaceVersionResponse(version=HAL_VERSION, hash=HAL_HASH)

    @handler()
    def GetCapabilities(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> types_pb2.Capabilities:
        """Return the performance figures of the device."""
        return wire.capabilities_message(self._devices.get(request.device).get_capabilities())

    @handler()
    def GetNumberOfCacheFilesNeeded(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> types_pb2.NumberOfCacheFiles:
        """Return the number of cache files of one prepared model."""
        files = self._devices.get(request.device).get_number_of_cache_files_needed()
        return types_pb2.NumberOfCacheFiles(num_model_cache=files.num_model_cache, num_data_cache=files.num_data_cache)

    @handler()
    def GetSupportedExtensions(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetSupportedExtensionsResponse:
        """Return the supported extensions."""
        extensions = self._devices.get(request.device).get_supported_extensions()
        return device_pb2.GetSupportedExtensionsResponse(extensions=map(wire.extension_message, extensions))

    @handler()
    def GetType(self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext) -> device_pb2.GetTypeResponse:
        """Return the type of the device."""
        type_ = int(self._devices.get(request.device).get_type())
        return device_pb2.GetTypeResponse(type=type_)  # type: ignore[arg-type]

    @handler()
    def GetVersionString(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetVersionStringResponse:
        """Return the version, which differs between releases."""
        return device_pb2.GetVersionStringResponse(version=self._devices.get(request.device).get_version_string())

    @handler()
    def GetSupportedOperations(
        self, request: device_pb2.GetSupportedOperationsRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetSupportedOperationsResponse:
        """Return whether each operation of the main subgraph is supported."""
        session = self._sessions.get(request.session, context)
        device = self._devices.get(request.device)
        _require_extensions(session, request.model.extension_name_to_prefix)
        deadline = Deadline(call_deadline(context))
        call = DeviceCall(deadline, session.owner, cancellation_of(context), self._reserve(session))
        with self._counted(session, request):
            supported, placement = device.get_supported_operations(
                ReceivedModel(session, request.model, self._limits), call
            )
        return device_pb2.GetSupportedOperationsResponse(
            supported=supported, placement=wire.placement_message(placement) if request.explain else None
        )

    def _reserve(self, session: Session) -> Callable[[int], Reservation]:
        """Return a function that reserves memory of the session for a model and its executions."""
        return lambda size: self._quota.reserve(session, size, "the model or execution")

    def _counted(self, session: Session, request: Message) -> AbstractContextManager[object]:
        """Return the context in which a request counts, while its model waits for its analysis."""
        return self._quota.reserve_request(session, request.ByteSize()) or nullcontext()

    @handler(non_blocking=True, reject=_reject_launch)
    def PrepareModel(
        self,
        request: device_pb2.PrepareModelRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """Launch a preparation."""
        options = LaunchOptions(request.preference, request.priority)
        prepare = partial(self._prepare, request, request.cache if request.HasField("cache") else None, options)
        self._launch(prepare, request, field_or_omitted(request, "deadline_ns"), context, send)

    @handler(non_blocking=True, reject=_reject_launch)
    def PrepareModelWithConfig(
        self,
        request: device_pb2.PrepareModelWithConfigRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """Launch a preparation with hints."""
        config = request.config
        options = LaunchOptions(
            config.preference,
            config.priority,
            wire.to_hints(config.compilation_hints),
            wire.to_extension_names(config.extension_name_to_prefix),
        )
        prepare = partial(self._prepare, request, config.cache if config.HasField("cache") else None, options)
        self._launch(prepare, request, field_or_omitted(config, "deadline_ns"), context, send)

    @handler()
    def Allocate(
        self, request: device_pb2.AllocateRequest, context: grpc.ServicerContext
    ) -> device_pb2.AllocateResponse:
        """Create a driver-managed buffer. Its roles name prepared models of this session only."""
        metered = MeteredCall("allocate", request.ByteSize(), context)
        session, device = self._sessions.get(request.session, context), self._devices.get(request.device)
        with self._calls.start(metered, session, ModelLabels(device.name)):
            roles = len(request.input_roles) + len(request.output_roles)
            self._limits.require("arguments", roles, "the allocation has")
            buffer = self._quota.count_object(
                session,
                lambda: device.allocate(
                    wire.to_buffer_desc(request.desc),
                    [session.get(handle, PreparedModel) for handle in request.prepared_models],
                    tuple(map(wire.to_buffer_role, request.input_roles)),
                    tuple(map(wire.to_buffer_role, request.output_roles)),
                    lambda size: self._quota.reserve_object(session, size),
                ),
                ARGUMENT_BYTES * roles,
            )
            response = device_pb2.AllocateResponse(buffer=session.add(buffer, "buffers"), token=buffer.token)
            metered.sent = response.ByteSize()
        return response

    @handler(non_blocking=True, reject=_reject_launch)
    def PrepareModelFromCache(
        self,
        request: device_pb2.PrepareModelFromCacheRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """Launch a preparation from the cache."""
        self._launch(partial(self._load, request), request, field_or_omitted(request, "deadline_ns"), context, send)

    def _prepare(
        self,
        request: PrepareRequest,
        cache: types_pb2.CompilationCache | None,
        options: LaunchOptions,
        stream: PreparationStream,
    ) -> None:
        """Launch a preparation from a model."""
        session, device = stream.session, self._devices.get(request.device)
        _require_extensions(session, (*request.model.extension_name_to_prefix, *options.extensions))
        save = PendingSave(self._cache_arguments, device, session, stream.name)
        reader = ReceivedModel(session, request.model, self._limits, self._models, partial(save.open, cache))
        with self._counted(session, request):
            device.prepare_model(PreparationLaunch(reader, save.committing(stream.notify), stream.call, options))

    def _load(self, request: device_pb2.PrepareModelFromCacheRequest, stream: PreparationStream) -> None:
        """Launch a preparation from cache files."""
        session, device = stream.session, self._devices.get(request.device)
        deadline_ns = stream.call.deadline.at_ns
        arguments, name = self._cache_arguments, stream.name
        with arguments.open_for_loading(device, session, request.cache, deadline_ns, name=name) as source:
            preloaded = self._preloader.get(device, str(session.identity), request.cache.token, source.generation)

            def notify(outcome: Outcome) -> None:
                prepared = outcome.prepared_model
                if preloaded is not None and prepared is not None and prepared.plan is preloaded.plan:
                    event("prepared-ahead", session=session.name)
                stream.notify(outcome)

            device.prepare_model_from_cache(source.reporting_damage(notify), source.files, stream.call, preloaded)

    def _launch(
        self,
        launch: Callable[[PreparationStream], None],
        request: PrepareRequest | device_pb2.PrepareModelFromCacheRequest,
        deadline_ns: int,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """Launch a preparation within the limit preparation_seconds."""
        started_ns = time.perf_counter_ns()
        deadline_ns = earliest(deadline_ns, call_deadline(context))
        longest_ns = now_ns() + self._limits["preparation_seconds"] * 10**9
        limited = deadline_ns == OMITTED or deadline_ns > longest_ns
        responses: Stream = ResponseStream(context, send)
        try:
            session = self._sessions.get(request.session, context)
        except HalError as error:
            self._count_error(request, error)
            reject_preparation(responses, error, context)
            return
        path = "load" if isinstance(request, device_pb2.PrepareModelFromCacheRequest) else "prepare"
        device = self._devices.label(request.device)
        meter = PreparationMeter(self._metrics, session, path, device, started_ns, request.ByteSize(), context)
        deadline = Deadline(longest_ns if limited else deadline_ns)
        call = DeviceCall(
            deadline, session.owner, cancellation_of(context), self._reserve(session), meter, session.client_digest
        )
        name = _plain_name(request.model_name)
        stream = PreparationStream(session, responses, self._executor, call, meter, context, name=name, limited=limited)
        try:
            with carry(context):
                launch(stream)
        except HalError as error:
            self._reject(request, stream, error)
        except BaseException as error:
            self._reject(request, stream, internal_error(error))
        else:
            stream.send_launched()

    def _reject(self, request: Message, stream: PreparationStream, error: HalError) -> None:
        """Count and report a failed launch."""
        mark_counted(error)  # by the meter of the stream
        if not stream.is_miss:
            self._count_error(request, error)
        stream.reject(error)

    def _count_error(self, request: Message, error: HalError) -> None:
        self._metrics.count_error(f"Device.{type(request).__name__.removesuffix('Request')}", error)


def _plain_name(name: str) -> str:
    """Return the name of a client's model for lists: never that of a model of the repository, which has a slash."""
    return "".join(c for c in name.rpartition("/")[2] if c.isprintable())[:_NAME_LENGTH]


def _require_extensions(session: Session, names: Collection[object]) -> None:
    """Raise an error if a model uses extensions that its identity may not use."""
    if names and session.account.rules.extensions is False:
        raise permission_denied(f"{session.identity} may not use vendor extensions")
