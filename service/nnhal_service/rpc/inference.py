"""GRPCInferenceService: the Open Inference Protocol over gRPC."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from nnhal.errors import HalError, invalid_argument
from nnhal.inference import open_inference_pb2 as messages
from nnhal.inference import open_inference_pb2_grpc
from nnhal.run_messages import field_head, scan_fields
from nnhal.types import Bytes, ErrorKind, ErrorStatus
from nnhal.version import __version__
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_service.grpc_support.call_context import call_deadline
from nnhal_service.grpc_support.errors import report_error, status_of
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.open_inference.guests import Guest, Guests
from nnhal_service.open_inference.model_run import ModelRun
from nnhal_service.open_inference.sequences import Sequence
from nnhal_service.open_inference.shared_memory import RegionPart, SharedRegion, SharedRegions
from nnhal_service.open_inference.statistics import STAGES, ModelStatistics, StageTimes
from nnhal_service.open_inference.translation import (
    BACKEND,
    EXTENSIONS,
    PLATFORM,
    READY,
    SERVER_NAME,
    SHARED_MEMORY,
    InferRequest,
    InputTensor,
    OutputTensor,
    ParameterValue,
    datatype,
    index_row,
    quantization,
    requested_output,
    shared_part,
    typed_bytes,
    unknown_repository,
    version_number,
)
from nnhal_service.repository.access import require_management, require_model
from nnhal_service.repository.repository import unknown_model
from nnhal_service.repository.served_model import NamedTensor, ServedModel
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.burst_stream import OpenStreams, until_disconnected
from nnhal_service.rpc.servicer import GrpcCall, ServicerBase, UnaryCall

_LENGTH_DELIMITED = 2
_RAW_INPUT = messages.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_RAW_OUTPUT = messages.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_STREAM_RESPONSE = messages.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_CONTENTS = {
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    **{"BOOL": "bool_contents", "INT64": "int64_contents", "UINT64": "uint64_contents"},
    **{"FP32": "fp32_contents", "FP64": "fp64_contents"},
}
"""Fields of typed contents by datatype. FP16 has none: it is always raw."""
_SPLIT_OFF: Bytes = np.empty(0, np.uint8)
"""Placeholder for raw contents of an input that are not a part of the decoded message."""
_SMALL_FORM_BYTES, _SMALL_FORMS = 512, 64
"""Size and number of requests without their raw contents that are decoded once: most differ in the contents only."""
_STREAM = "inference.GRPCInferenceService.ModelStreamInfer"
"""Name of the method, for metrics and logs of the requests of a stream."""


class InferenceHost(NamedTuple):
    """Parts of a service that the protocol needs.

    Attributes:
        is_ready: returns whether the service serves, and the models that it loads at the start are loaded.
        shares_memory: whether clients may register shared memory.
        count_error: is called with the name of a method and the error of a request of its stream.
    """

    guests: Guests
    unread: UnreadResponses
    streams: OpenStreams
    is_ready: Callable[[], bool]
    shares_memory: bool
    statistics: ModelStatistics
    count_error: Callable[[str, HalError], None]


class InferenceServicer(ServicerBase, open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Servicer of GRPCInferenceService.

    Args:
        host: the parts of the service that the protocol needs.
    """

    def __init__(self, parts: ServiceParts, host: InferenceHost) -> None:
        super().__init__(parts)
        self._guests, self._unread, self._streams = host.guests, host.unread, host.streams
        self._is_ready, self._shares_memory = host.is_ready, host.shares_memory
        self._statistics, self._count_error = host.statistics, host.count_error
        self._repository = self._guests.repository

    def _guest(self, context: grpc.ServicerContext) -> Guest:
        credential, _ = self._sessions.authentication.admit(context)
        return self._guests.of(credential, context.peer())

    def _require_management(self, name: str, context: grpc.ServicerContext) -> None:
        require_management(self._guest(context).session.account, name, self._sessions.authentication)

    def _served(
        self, request: messages.ModelMetadataRequest | messages.ModelConfigRequest, context: grpc.ServicerContext
    ) -> ServedModel:
        """Return the model that a request names, which is loaded."""
        version = version_number(request.name, request.version)
        patience_s = self._patience_s(Deadline(call_deadline(context)))
        return self._guest(context).model(request.name, version, timeout_s=patience_s).served

    @handler(is_public=True)
    def ServerLive(
        self, request: messages.ServerLiveRequest, context: grpc.ServicerContext
    ) -> messages.ServerLiveResponse:
        """Respond."""
        return messages.ServerLiveResponse(live=True)

    @handler(is_public=True)
    def ServerReady(
        self, request: messages.ServerReadyRequest, context: grpc.ServicerContext
    ) -> messages.ServerReadyResponse:
        """Return whether clients can use the service now."""
        return messages.ServerReadyResponse(ready=self._is_ready())

    @handler(is_public=True)
    def ModelReady(
        self, request: messages.ModelReadyRequest, context: grpc.ServicerContext
    ) -> messages.ModelReadyResponse:
        """Return whether a model is in memory, or can be loaded as far as is known."""
        require_model(self._guest(context).session.account, request.name)
        version = version_number(request.name, request.version)
        return messages.ModelReadyResponse(ready=self._repository.is_ready(request.name, version))

    @handler(is_public=True)
    def ServerMetadata(
        self, request: messages.ServerMetadataRequest, context: grpc.ServicerContext
    ) -> messages.ServerMetadataResponse:
        """Return name, version and extensions."""
        self._guest(context)
        extensions = (*EXTENSIONS, *([SHARED_MEMORY] if self._shares_memory else []))
        return messages.ServerMetadataResponse(name=SERVER_NAME, version=__version__, extensions=extensions)

    @handler(is_public=True)
    def ModelMetadata(
        self, request: messages.ModelMetadataRequest, context: grpc.ServicerContext
    ) -> messages.ModelMetadataResponse:
        """Return versions and tensors of a model, which is loaded."""
        served = self._served(request, context)
        return messages.ModelMetadataResponse(
            name=served.name,
            versions=map(str, self._repository.versions(served.name)),
            platform=PLATFORM,
            inputs=map(_tensor_metadata, served.inputs),
            outputs=map(_tensor_metadata, served.outputs),
        )

    @handler(raw=True, is_public=True)
    def ModelInfer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Run a model."""
        guest = self._guest(context)
        response = self._infer(UnaryCall("inference", len(request), context), guest, request)
        self._unread.count(guest.session.token, context, len(response))
        return response

    def _infer(self, call: GrpcCall, guest: Guest, request: bytes) -> bytes:
        """Run a model, and return the encoded response."""
        times = StageTimes(call.received_ns)
        infer = read_infer_request(request)
        version = version_number(infer.model, infer.version)
        model = guest.model(infer.model, version, infer.priority, self._patience_s(Deadline(call.deadline_ns)))
        is_success = False
        try:
            with guest.sequences.step(model, version, infer.step) as sequence:
                model = sequence.model  # perhaps an older version, with which the sequence has started
                response = self._run_model(call, guest, sequence, infer, times)
            is_success = True
        finally:
            self._statistics.count(model.served.name, model.served.version, times, is_success=is_success)
        return response

    def _run_model(
        self, call: GrpcCall, guest: Guest, sequence: Sequence, infer: InferRequest, times: StageTimes
    ) -> bytes:
        """Run a model with the states of a sequence, which it changes."""
        session = guest.session
        self._parts.begin_execution(call, session, sequence.model.prepared, infer.timeout_ns)
        shared = sum(tensor.data.size for tensor in infer.inputs if isinstance(tensor.data, RegionPart))
        with call, call.running(session, self._quota), self._quota.reserve(session, shared, "the inputs"):
            run = ModelRun.of(sequence.model, infer, sequence.states, guest.regions)
            times.end("compute_input")
            result = run.execute(call)
            times.end("compute_infer")
            response = encode_response(run, infer, run.response(result, guest.regions))
            self._limits.require("message_bytes", len(response), "the response has")
            call.note(result, len(response))
            times.end_with_queue("compute_output", call.queued_ns)
            times.is_joined = call.is_joined
        sequence.states = run.states(result)
        return response

    @handler(raw=True, is_public=True, pool="bursts")
    def ModelStreamInfer(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Run models, one after the other. A request that fails has its error as response; the stream goes on."""
        with self._streams.open(context) as stream:
            for request in until_disconnected(requests, context):
                call = stream.begin_call("inference", len(request))
                guest = self._guest(context)
                stream.bind(guest.session)
                try:
                    response = stream_response(self._infer(call, guest, request))
                except BaseException as error:
                    response = stream_error(report_error(_STREAM, error, self._count_error))
                with self._unread.sending(guest.session, context, len(response)):
                    yield response
                stream.end_call()

    # ---- Extensions of Triton ---------------------------------------------------------------------------

    @handler(is_public=True)
    def ModelStatistics(
        self, request: messages.ModelStatisticsRequest, context: grpc.ServicerContext
    ) -> messages.ModelStatisticsResponse:
        """Return what this worker has counted: of a version, of a model, or of all models that the caller may use."""
        account = self._guest(context).session.account
        version = version_number(request.name, request.version)
        if request.name:
            require_model(account, request.name)
        entries = [entry for entry in self._repository.index() if account.rules.may_use(entry.name)]
        chosen = [entry for entry in entries if entry.name == (request.name or entry.name)]
        chosen = [entry for entry in chosen if version is None or entry.version == version]
        if request.name and not chosen:
            raise unknown_model(request.name, "is not found" if version is None else f"has no version {version}")
        stats = (_statistics(entry.name, entry.version, self._statistics) for entry in chosen)
        return messages.ModelStatisticsResponse(model_stats=stats)

    @handler(is_public=True)
    def SystemSharedMemoryRegister(
        self, request: messages.SystemSharedMemoryRegisterRequest, context: grpc.ServicerContext
    ) -> messages.SystemSharedMemoryRegisterResponse:
        """Register a region of the client's user."""
        regions = self._regions(context)
        region = SharedRegion(request.name, request.key, request.offset, request.byte_size)
        regions.register(region, self._user(context))
        return messages.SystemSharedMemoryRegisterResponse()

    @handler(is_public=True)
    def SystemSharedMemoryUnregister(
        self, request: messages.SystemSharedMemoryUnregisterRequest, context: grpc.ServicerContext
    ) -> messages.SystemSharedMemoryUnregisterResponse:
        """Forget a region, or all of them."""
        self._regions(context).unregister(request.name)
        return messages.SystemSharedMemoryUnregisterResponse()

    @handler(is_public=True)
    def SystemSharedMemoryStatus(
        self, request: messages.SystemSharedMemoryStatusRequest, context: grpc.ServicerContext
    ) -> messages.SystemSharedMemoryStatusResponse:
        """Return a region, or all of them."""
        status = messages.SystemSharedMemoryStatusResponse.RegionStatus
        found = self._regions(context).status(request.name)
        regions = {region.name: status(**region._asdict()) for region in found}
        return messages.SystemSharedMemoryStatusResponse(regions=regions)

    def _regions(self, context: grpc.ServicerContext) -> SharedRegions:
        guest = self._guest(context)
        if not self._shares_memory:
            reason = "the service does not use shared memory of clients; its operator can allow it with --models-shm"
            raise HalError(ErrorStatus.GENERAL_FAILURE, reason, kind=ErrorKind.UNIMPLEMENTED)
        return guest.regions

    def _user(self, context: grpc.ServicerContext) -> int | None:
        """Return the user who calls, if it is one of this machine."""
        return self._sessions.authentication.user(context.peer())

    @handler(is_public=True)
    def ModelConfig(
        self, request: messages.ModelConfigRequest, context: grpc.ServicerContext
    ) -> messages.ModelConfigResponse:
        """Return the configuration of a model, which is loaded."""
        served = self._served(request, context)
        config = messages.ModelConfig(name=served.name, platform=PLATFORM, backend=BACKEND)
        for spec in served.inputs:
            config.input.add(name=spec.name, data_type=_data_type(spec), dims=spec.shape)
        for spec in served.outputs:
            config.output.add(name=spec.name, data_type=_data_type(spec), dims=spec.shape)
        return messages.ModelConfigResponse(config=config)

    @handler(is_public=True)
    def RepositoryIndex(
        self, request: messages.RepositoryIndexRequest, context: grpc.ServicerContext
    ) -> messages.RepositoryIndexResponse:
        """Return the models that the caller may use, with their states."""
        _require_repository(request.repository_name)
        rules = self._guest(context).session.account.rules
        entries = [index_row(entry) for entry in self._repository.index() if rules.may_use(entry.name)]
        return messages.RepositoryIndexResponse(
            models=(
                messages.RepositoryIndexResponse.ModelIndex(**row._asdict())
                for row in entries
                if row.state == READY or not request.ready
            )
        )

    @handler(is_public=True)
    def RepositoryModelLoad(
        self, request: messages.RepositoryModelLoadRequest, context: grpc.ServicerContext
    ) -> messages.RepositoryModelLoadResponse:
        """Load the current files of a model."""
        _require_repository(request.repository_name)
        if request.parameters:
            raise invalid_argument(f"parameter {min(request.parameters)!r} of a load is not supported")
        self._require_management(request.model_name, context)
        self._repository.load(request.model_name, self._patience_s(Deadline(call_deadline(context))))
        return messages.RepositoryModelLoadResponse()

    @handler(is_public=True)
    def RepositoryModelUnload(
        self, request: messages.RepositoryModelUnloadRequest, context: grpc.ServicerContext
    ) -> messages.RepositoryModelUnloadResponse:
        """Unload a model until it is loaded again."""
        _require_repository(request.repository_name)
        self._require_management(request.model_name, context)
        self._repository.unload(request.model_name)
        return messages.RepositoryModelUnloadResponse()


def _require_repository(name: str) -> None:
    if name:
        raise unknown_repository(name)


def _data_type(spec: NamedTensor) -> messages.DataType.ValueType:
    return messages.DataType.Value(f"TYPE_{datatype(spec)}")


def read_infer_request(encoded: bytes) -> InferRequest:
    """Decode a ModelInferRequest. Its raw contents are views of the message.

    Raises:
        HalError: INVALID_ARGUMENT: the bytes are not such a message, or its fields contradict each other.
    """
    rest, raw = _split_raw(encoded)
    form = (_read_small_form if len(rest) <= _SMALL_FORM_BYTES else _read_form)(rest, len(raw))
    contents = iter(raw)
    inputs = [
        InputTensor(tensor.name, tensor.datatype, tensor.shape, next(contents)) if tensor.data is _SPLIT_OFF else tensor
        for tensor in form.inputs
    ]
    return InferRequest(form.model, form.version, inputs, form.outputs, form.id, form.parameters)


def _split_raw(encoded: bytes) -> tuple[bytes, list[Bytes]]:
    """Return a message without its raw contents, and those; an unusual message as a whole, and none."""
    fields = scan_fields(encoded)
    everything = np.frombuffer(encoded, np.uint8)
    raw: list[Bytes] = []
    parts, start = [], 0
    for tag, begin, end in fields or ():
        if not end:  # a varint, which no field of the message is
            return encoded, []
        if tag == _RAW_INPUT:
            raw.append(everything[begin:end])
        else:
            parts.append(encoded[start:end])
        start = end
    return (b"".join(parts), raw) if raw else (encoded, [])


def _read_form(rest: bytes, split_off: int) -> InferRequest:
    """Return a request of whose raw contents some were split off: the inputs that they belong to have `_SPLIT_OFF`."""
    try:
        message = messages.ModelInferRequest.FromString(rest)
    except DecodeError as error:
        raise invalid_argument(f"the request cannot be decoded: {error}") from None
    raw = [np.frombuffer(value, np.uint8) for value in message.raw_input_contents] or [_SPLIT_OFF] * split_off
    parameters = [plain_parameters(tensor.parameters) for tensor in message.inputs]
    parts = [shared_part(each) for each in parameters]
    count = parts.count(None)
    if raw and len(raw) != count:
        raise invalid_argument(
            f"expected {count} raw input contents, one for each input that has them, got {len(raw)}; contents field "
            "must not be specified when using raw_input_contents"
        )
    inputs = []
    contents = iter(raw)
    for tensor, part in zip(message.inputs, parts, strict=True):
        if raw and tensor.contents.ByteSize():  # MLServer's client always has the field
            raise invalid_argument(
                f"contents field must not be specified when using raw_input_contents for '{tensor.name}' for model "
                f"'{message.model_name}'"
            )
        data = part or (next(contents) if raw else _typed(tensor))
        inputs.append(InputTensor(tensor.name, tensor.datatype, tuple(tensor.shape), data))
    return InferRequest(
        message.model_name,
        message.model_version,
        inputs,
        [requested_output(output.name, plain_parameters(output.parameters)) for output in message.outputs],
        message.id,
        plain_parameters(message.parameters),
    )


_read_small_form = lru_cache(_SMALL_FORMS)(_read_form)


def _typed(tensor: messages.ModelInferRequest.InferInputTensor) -> Bytes:
    """Return the bytes of typed contents."""
    used = [field.name for field, _ in tensor.contents.ListFields()]
    expected = _CONTENTS.get(tensor.datatype, "")
    if used and used != [expected]:
        raise invalid_argument(
            f"inference input '{tensor.name}' of {tensor.datatype} has {', '.join(used)}; "
            f"expected {expected or 'raw_input_contents'}"
        )
    data = typed_bytes(tensor.name, tensor.datatype, getattr(tensor.contents, expected) if used else ())
    data.flags.writeable = False  # requests of the same form share it
    return data


def plain_parameters(parameters: Mapping[str, messages.InferParameter]) -> dict[str, ParameterValue]:
    """Return the values of parameters. Those without a value are left out."""
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in parameters.items()}
    return {name: getattr(parameters[name], kind) for name, kind in chosen.items() if kind is not None}


def encode_response(run: ModelRun, request: InferRequest, tensors: Iterable[OutputTensor]) -> bytes:
    """Encode a ModelInferResponse. Each value is copied once."""
    served = run.model.served
    message = messages.ModelInferResponse(model_name=served.name, model_version=str(served.version), id=request.id)
    parts: list[bytes | memoryview] = [b""]
    for tensor in tensors:
        entry = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if tensor.part is not None:
            entry.parameters["shared_memory_region"].string_param = tensor.part.region
            entry.parameters["shared_memory_byte_size"].int64_param = tensor.part.size
            entry.parameters["shared_memory_offset"].int64_param = tensor.part.offset
            parts.append(field_head(_RAW_OUTPUT, 0))  # clients find the others by their positions
        else:
            parts += (field_head(_RAW_OUTPUT, tensor.data.size), tensor.data.data)
    parts[0] = message.SerializeToString()
    return b"".join(parts)


def stream_response(response: bytes) -> bytes:
    """Return the message of a stream with an encoded response."""
    return b"".join((field_head(_STREAM_RESPONSE, len(response)), response))


def stream_error(error: HalError) -> bytes:
    """Return the message of a stream about a request that has failed."""
    return messages.ModelStreamInferResponse(error_message=status_of(error)[1]).SerializeToString()


def _statistics(name: str, version: int, statistics: ModelStatistics) -> messages.ModelStatistics:
    counts = statistics.of(name, version)
    durations = {stage: messages.StatisticDuration(count=counts.counts[stage], ns=counts.ns[stage]) for stage in STAGES}
    number = counts.counts["success"]
    return messages.ModelStatistics(
        name=name,
        version=str(version),
        last_inference=counts.last_ms,
        inference_count=number,
        execution_count=counts.executions,
        inference_stats=messages.InferStatistics(**durations),
    )


def _tensor_metadata(spec: NamedTensor) -> messages.ModelMetadataResponse.TensorMetadata:
    metadata = messages.ModelMetadataResponse.TensorMetadata(name=spec.name, datatype=datatype(spec), shape=spec.shape)
    for name, value in quantization(spec).items():
        if isinstance(value, float):
            metadata.parameters[name].double_param = value
        else:
            metadata.parameters[name].int64_param = int(value)
    return metadata
