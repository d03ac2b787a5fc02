"""Models: models by name over the contract."""

import time
from typing import TypeAlias

import grpc
import numpy as np

from nnhal import wire
from nnhal.errors import general_failure, invalid_argument
from nnhal.types import CacheOutcome, ErrorStatus, ModelState
from nnhal.v1 import models_pb2, models_pb2_grpc
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_service.grpc_support.call_context import call_deadline, earliest, field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.identity.accounts import permission_denied
from nnhal_service.metrics.preparations import PreparationMeter
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.repository.access import require_management, require_model, require_push
from nnhal_service.repository.pushed_files import PushedFiles
from nnhal_service.repository.repository import Repository
from nnhal_service.repository.served_model import ServedModel
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.preparation import notify_message
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session import Session

_FilesRequest: TypeAlias = models_pb2.PushModelRequest | models_pb2.PullModelRequest | models_pb2.RemoveModelRequest


class ModelsServicer(ServicerBase, models_pb2_grpc.ModelsServicer):
    """Servicer of Models.

    Args:
        repository: the models; None if the operator has no folder of them.
        pushed: their files; or why clients may not push any.
    """

    def __init__(
        self, parts: ServiceParts, repository: Repository | None, pushed: PushedFiles | str, metrics: WorkerMetrics
    ) -> None:
        super().__init__(parts)
        self._found = repository
        self._pushed = pushed
        self._metrics = metrics

    @property
    def _repository(self) -> Repository:
        if self._found is None:
            raise general_failure("the service has no models by name; its operator can name a folder with --models")
        return self._found

    @handler()
    def List(
        self, request: models_pb2.ListModelsRequest, context: grpc.ServicerContext
    ) -> models_pb2.ListModelsResponse:
        """Return the models that the identity may use; none if there is no folder."""
        rules = self._sessions.get(request.session, context).account.rules
        entries = () if self._found is None else self._found.index()
        return models_pb2.ListModelsResponse(
            models=(
                models_pb2.ModelEntry(
                    name=entry.name,
                    version=entry.version,
                    state=int(entry.state),  # type: ignore[arg-type]
                    reason=entry.reason,
                )
                for entry in entries
                if rules.may_use(entry.name)
            )
        )

    @handler()
    def Prepare(
        self, request: models_pb2.PrepareNamedModelRequest, context: grpc.ServicerContext
    ) -> models_pb2.PrepareNamedModelResponse:
        """Return a model, which is loaded if it is not in memory."""
        received_ns = time.perf_counter_ns()
        session = self._sessions.get(request.session, context)
        require_model(session.account, request.name)
        deadline = Deadline(earliest(field_or_omitted(request, "deadline_ns"), call_deadline(context)))
        served = self._repository.get(request.name, request.version or None, self._patience_s(deadline))
        device = served.prepared.device
        meter = PreparationMeter(self._metrics, session, "name", device, received_ns, request.ByteSize(), context)
        outcome = served.share(session, self._quota, deadline)
        handle = session.add(outcome.prepared_model, "prepared_models")
        meter.end(ErrorStatus.NONE, served.prepared.digest, CacheOutcome(), served.prepared.name)
        return models_pb2.PrepareNamedModelResponse(
            notify=notify_message(outcome, context, handle, session.identity), description=_description(served)
        )

    @handler()
    def Load(self, request: models_pb2.LoadModelRequest, context: grpc.ServicerContext) -> models_pb2.LoadModelResponse:
        """Load the current files of a model."""
        session = self._sessions.get(request.session, context)
        require_management(session.account, request.name, self._sessions.authentication)
        self._repository.load(request.name, self._patience_s(Deadline(call_deadline(context))))
        return models_pb2.LoadModelResponse()

    @handler()
    def Unload(
        self, request: models_pb2.UnloadModelRequest, context: grpc.ServicerContext
    ) -> models_pb2.UnloadModelResponse:
        """Unload a model until it is loaded again."""
        session = self._sessions.get(request.session, context)
        require_management(session.account, request.name, self._sessions.authentication)
        self._repository.unload(request.name)
        return models_pb2.UnloadModelResponse()

    @handler(pool="transfers")
    def Push(self, request: models_pb2.PushModelRequest, context: grpc.ServicerContext) -> models_pb2.PushModelResponse:
        """Add a version of a model."""
        session, files = self._files_for(request, context)
        memory = session.get(request.memory, MemoryObject)
        if not memory.sha256 or not memory.complete:
            raise invalid_argument("the memory with the file has no digest, or is incomplete")
        config = request.config if request.HasField("config") else None
        return models_pb2.PushModelResponse(
            version=files.push(session.account, request.name, request.version, memory.buffer, config)
        )

    @handler(pool="transfers")
    def Pull(self, request: models_pb2.PullModelRequest, context: grpc.ServicerContext) -> models_pb2.PullModelResponse:
        """Return the files of a version."""
        session, files = self._files_for(request, context)
        version, data, config = files.pull(request.name, request.version)
        memory = OutputWriter(session, 0, self._quota).to_memory_object(data)
        return models_pb2.PullModelResponse(version=version, memory=memory, config=config)

    @handler(pool="transfers")
    def Remove(
        self, request: models_pb2.RemoveModelRequest, context: grpc.ServicerContext
    ) -> models_pb2.RemoveModelResponse:
        """Remove versions of a model."""
        session, files = self._files_for(request, context)
        files.remove(session.account, request.name, request.version)
        return models_pb2.RemoveModelResponse()

    def _files_for(self, request: _FilesRequest, context: grpc.ServicerContext) -> tuple[Session, PushedFiles]:
        """Return the session of a call, which may push the model that it names, and the files."""
        session = self._sessions.get(request.session, context)
        if isinstance(self._pushed, str):
            raise permission_denied(self._pushed)
        require_push(session.account, request.name, self._sessions.authentication)
        if request.version < 0:
            raise invalid_argument(f"version is {request.version}; it must be >= 0")
        return session, self._pushed


def _description(served: ServedModel) -> models_pb2.ModelDescription:
    model = served.model
    return models_pb2.ModelDescription(
        name=served.name,
        version=served.version,
        device=served.prepared.device,
        input_names=model.input_names,
        output_names=model.output_names,
        states=map(_variable, model.states),
        extension_name_to_prefix=wire.extension_names_message(model.extension_name_to_prefix),
        labels=served.config.labels,
    )


def _variable(state: ModelState) -> models_pb2.ModelVariable:
    initial = np.ascontiguousarray(state.initial).tobytes() if np.any(state.initial) else b""
    return models_pb2.ModelVariable(
        name=state.name, input_index=state.input_index, output_index=state.output_index, initial=initial
    )
