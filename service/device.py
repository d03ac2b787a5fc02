"""Device: IDevice over the contract."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import grpc

from driver.deadline import now_ns
from driver.device import Device
from nnhal import wire
from nnhal.errors import HalError, invalid_argument
from nnhal.types import HAL_HASH, HAL_VERSION, OMITTED, Model, PrepareModelConfig
from nnhal.v1 import device_pb2, device_pb2_grpc, types_pb2
from service.limits import Limits
from service.memory import read_memory
from service.preparation import PreparationStream
from service.rpc import absolute_deadline, answering, internal
from service.sessions import Session, Sessions
from service.stream import ResponseStream, Send

PrepareRequest = device_pb2.PrepareModelRequest | device_pb2.PrepareModelWithConfigRequest


class DeviceServicer(device_pb2_grpc.DeviceServicer):
    """The RPCs."""

    def __init__(self, devices: Sequence[Device], sessions: Sessions, executor: Executor, limits: Limits) -> None:
        self._devices = {device.name: device for device in devices} | {"": devices[0]}
        self._sessions = sessions
        self._executor = executor
        self._limits = limits

    def _device(self, name: str) -> Device:
        if name not in self._devices:
            raise invalid_argument(f"there is no device {name!r}; there are {', '.join(filter(None, self._devices))}")
        return self._devices[name]

    @answering
    def ListDevices(
        self, request: device_pb2.ListDevicesRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListDevicesResponse:
        """Names, the default first."""
        return device_pb2.ListDevicesResponse(devices=[name for name in self._devices if name])

    @answering
    def ListBackends(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListBackendsResponse:
        """The device's backends, in order."""
        return device_pb2.ListBackendsResponse(
            backends=[
                device_pb2.BackendInfo(
                    id=backend.id,
                    version=backend.version,
                    state=device_pb2.BACKEND_STATE_READY,
                    origin="built in",
                    capabilities=backend.capabilities(),
                )
                for backend in self._device(request.device).backends
            ]
        )

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
        deadline = request.deadline_ns if request.HasField("deadline_ns") else None
        config = PrepareModelConfig(request.preference, request.priority, absolute_deadline(deadline, context))
        self._prepare(request, config, context, send)

    @answering
    def PrepareModelWithConfig(  # type: ignore[override]
        self,
        request: device_pb2.PrepareModelWithConfigRequest,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        """The same, with hints."""
        message = request.config
        deadline = message.deadline_ns if message.HasField("deadline_ns") else None
        config = PrepareModelConfig(
            message.preference,
            message.priority,
            absolute_deadline(deadline, context),
            wire.to_hints(message.compilation_hints),
            wire.to_extension_names(message.extension_name_to_prefix),
        )
        self._prepare(request, config, context, send)

    # grpc calls such a handler with a function that sends, and keeps no thread for the stream
    PrepareModel.experimental_non_blocking = True  # type: ignore[attr-defined]
    PrepareModelWithConfig.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _prepare(
        self,
        request: PrepareRequest,
        config: PrepareModelConfig,
        context: grpc.ServicerContext,
        send: Send[device_pb2.PrepareModelEvent],
    ) -> None:
        session = self._sessions.get(request.session)
        longest = now_ns() + self._limits["preparation_seconds"] * 10**9
        limited = config.deadline_ns == OMITTED or config.deadline_ns > longest
        if limited:
            config = replace(config, deadline_ns=longest)
        stream = PreparationStream(session, ResponseStream(context, send), self._executor, limited=limited)
        try:
            device = self._device(request.device)
            cancellation = device.prepare_model(self._model(session, request.model), stream.notify, config)
        except HalError as error:
            stream.refused(error)
        except Exception as error:
            stream.refused(internal(error))
        else:
            if not context.add_callback(cancellation.cancel):
                cancellation.cancel()
            stream.launched()
