"""Device: IDevice over the contract."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import grpc

from driver.backends.report import Report
from driver.cancellation import Cancellation
from driver.deadline import now_ns
from driver.device import Device
from driver.prepared_model import PreparedModel
from nnhal import wire
from nnhal.errors import HalError
from nnhal.types import HAL_HASH, HAL_VERSION, OMITTED, Model, PrepareModelConfig
from nnhal.v1 import device_pb2, device_pb2_grpc, types_pb2
from service.backends import report_message
from service.devices import Devices
from service.kept_models import KeptModels
from service.limits import Limits, MemoryQuota
from service.log import event
from service.memory import read_memory
from service.preparation import PreparationStream
from service.rpc import answering, call_deadline, earlier, internal, optional_ns
from service.sessions import Session, Sessions
from service.stream import ResponseStream, Send
from service.warm import WarmModels

PrepareRequest = device_pb2.PrepareModelRequest | device_pb2.PrepareModelWithConfigRequest


class DeviceServicer(device_pb2_grpc.DeviceServicer):
    """The RPCs."""

    def __init__(
        self,
        devices: Devices,
        sessions: Sessions,
        executor: Executor,
        limits: Limits,
        reports: Mapping[str, Sequence[Report]],
        quota: MemoryQuota,
        kept: KeptModels,
        warm: WarmModels,
    ) -> None:
        self._devices = devices
        self._warm = warm
        self._kept = kept
        self._reports = reports
        self._quota = quota
        self._sessions = sessions
        self._executor = executor
        self._limits = limits

    def _device(self, name: str) -> Device:
        return self._devices.get(name)

    @answering
    def ListDevices(
        self, request: device_pb2.ListDevicesRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListDevicesResponse:
        """Names, the default first."""
        return device_pb2.ListDevicesResponse(devices=self._devices.names)

    @answering
    def ListBackends(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListBackendsResponse:
        """Every candidate: the device's backends in order, then those that are not used."""
        reports = self._reports[self._device(request.device).name]
        return device_pb2.ListBackendsResponse(backends=map(report_message, reports))

    @answering
    def GetInterfaceVersion(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        """Version 4 and its hash."""
        self._device(request.device)
        return device_pb2.GetInterfaceVersionResponse(version=HAL_VERSION, hash=HAL_HASH)

    @answering
    def GetCapabilities(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> types_pb2.Capabilities:
        """Performance figures."""
        return wire.capabilities_message(self._device(request.device).get_capabilities())

    @answering
    def GetNumberOfCacheFilesNeeded(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> types_pb2.NumberOfCacheFiles:
        """Cache files that one prepared model needs."""
        files = self._device(request.device).get_number_of_cache_files_needed()
        return types_pb2.NumberOfCacheFiles(num_model_cache=files.num_model_cache, num_data_cache=files.num_data_cache)

    @answering
    def GetSupportedExtensions(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetSupportedExtensionsResponse:
        """Extensions."""
        extensions = self._device(request.device).get_supported_extensions()
        return device_pb2.GetSupportedExtensionsResponse(extensions=map(wire.extension_message, extensions))

    @answering
    def GetType(self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext) -> device_pb2.GetTypeResponse:
        """What the device is."""
        type_ = int(self._device(request.device).get_type())
        return device_pb2.GetTypeResponse(type=type_)  # type: ignore[arg-type]

    @answering
    def GetVersionString(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetVersionStringResponse:
        """Differs between releases."""
        return device_pb2.GetVersionStringResponse(version=self._device(request.device).get_version_string())

    @answering
    def GetSupportedOperations(
        self, request: device_pb2.GetSupportedOperationsRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetSupportedOperationsResponse:
        """One answer per operation of main."""
        session = self._sessions.get(request.session)
        device = self._device(request.device)
        supported, placement = device.get_supported_operations(self._model(session, request.model))
        return device_pb2.GetSupportedOperationsResponse(
            supported=supported, placement=wire.placement_message(placement) if request.explain else None
        )

    def _model(self, session: Session, message: types_pb2.Model) -> Model:
        self._limits.hold_model(message)
        return wire.to_model(message, lambda pool: read_memory(session, pool))

    @answering
    def PrepareModel(  # type: ignore[override]
        self,
        request: device_pb2.PrepareModelRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """Launches a preparation."""
        deadline = earlier(optional_ns(request, "deadline_ns"), call_deadline(context))
        config = PrepareModelConfig(request.preference, request.priority, deadline)
        self._prepare(request, request.cache if request.HasField("cache") else None, config, context, send)

    @answering
    def PrepareModelWithConfig(  # type: ignore[override]
        self,
        request: device_pb2.PrepareModelWithConfigRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """The same, with hints."""
        message = request.config
        config = PrepareModelConfig(
            message.preference,
            message.priority,
            earlier(optional_ns(message, "deadline_ns"), call_deadline(context)),
            wire.to_hints(message.compilation_hints),
            wire.to_extension_names(message.extension_name_to_prefix),
        )
        self._prepare(request, message.cache if message.HasField("cache") else None, config, context, send)

    @answering
    def Allocate(
        self, request: device_pb2.AllocateRequest, context: grpc.ServicerContext
    ) -> device_pb2.AllocateResponse:
        """Makes a driver-managed buffer. Its roles name prepared models of this session alone."""
        session = self._sessions.get(request.session)
        self._limits.hold("arguments", len(request.input_roles) + len(request.output_roles), "the allocation has")
        buffer = self._device(request.device).allocate(
            wire.to_buffer_desc(request.desc),
            [session.get(handle, PreparedModel) for handle in request.prepared_models],
            tuple(map(wire.to_buffer_role, request.input_roles)),
            tuple(map(wire.to_buffer_role, request.output_roles)),
            lambda size: self._quota.reserve(session.identity, size),
        )
        return device_pb2.AllocateResponse(buffer=session.add(buffer, "buffers"), token=buffer.token)

    @answering
    def PrepareModelFromCache(  # type: ignore[override]
        self,
        request: device_pb2.PrepareModelFromCacheRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """Launches a preparation from what one before it saved."""
        session = self._sessions.get(request.session)
        wanted = earlier(optional_ns(request, "deadline_ns"), call_deadline(context))
        deadline, limited = self._limited(wanted)

        def launch(stream: PreparationStream) -> Cancellation:
            device = self._device(request.device)
            with self._kept.found(session, request.cache) as found:
                warm = self._warm.get(device, session.identity, request.cache.token, found.generation)
                if warm is not None:
                    event("prepared-ahead", session=session.name)
                return device.prepare_model_from_cache(found.settled(stream.notify), warm or found.files, deadline)

        self._launch(launch, session, context, send, limited=limited)

    # grpc calls such a handler with a function that sends, and keeps no thread for the stream
    PrepareModel.experimental_non_blocking = True  # type: ignore[attr-defined]
    PrepareModelWithConfig.experimental_non_blocking = True  # type: ignore[attr-defined]
    PrepareModelFromCache.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _prepare(
        self,
        request: PrepareRequest,
        cache: types_pb2.CompilationCache | None,
        config: PrepareModelConfig,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        session = self._sessions.get(request.session)
        deadline, limited = self._limited(config.deadline_ns)
        bounded = replace(config, deadline_ns=deadline)

        def launch(stream: PreparationStream) -> Cancellation:
            device = self._device(request.device)
            model = self._model(session, request.model)
            saving = self._kept.saving(device, session, cache)
            try:
                return device.prepare_model(model, saving.settled(stream.notify), bounded, saving.files)
            except BaseException:
                saving.abandon()
                raise

        self._launch(launch, session, context, send, limited=limited)

    def _limited(self, deadline_ns: int) -> tuple[int, bool]:
        """The deadline of a preparation, and whether it is the service's limit."""
        longest = now_ns() + self._limits["preparation_seconds"] * 10**9
        limited = deadline_ns == OMITTED or deadline_ns > longest
        return longest if limited else deadline_ns, limited

    def _launch(
        self,
        launch: Callable[[PreparationStream], Cancellation],
        session: Session,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
        *,
        limited: bool,
    ) -> None:
        stream = PreparationStream(session, ResponseStream(context, send), self._executor, limited=limited)
        try:
            cancellation = launch(stream)
        except HalError as error:
            stream.refused(error)
        except Exception as error:
            stream.refused(internal(error))
        else:
            if not context.add_callback(cancellation.cancel):
                cancellation.cancel()
            stream.launched()
