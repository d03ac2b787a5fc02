# Generated from aio/device_queries.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Calls of a device other than preparations."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from nnhal import wire
from nnhal.client.core.arguments import ModelSource, enum_value
from nnhal.client.core.buffers import Roles, allocation, check_roles
from nnhal.client.core.cache import ClientCacheFolder, PreparationSpec, SharedDeadline, stored_entry
from nnhal.client.core.handles import description
from nnhal.client.fallback.preparation import PreparationArguments
from nnhal.client.names.named_spec import NamedSpec, PulledModel
from nnhal.client.sync.buffer import Buffer
from nnhal.client.sync.concurrency import run_blocking
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.fence import OwnFence, create_fence
from nnhal.client.sync.grpc_calls import PreparationCall
from nnhal.client.sync.preparation import device_version, load_model, model_message, prepare, prepare_named
from nnhal.client.sync.prepared_model import PreparedModel
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.types import (
    BackendInfo,
    CacheCounters,
    CacheOutcome,
    Capabilities,
    DeviceType,
    ExecutionPreference,
    Extension,
    Model,
    ModelEntry,
    Placement,
    Priority,
)
from nnhal.v1 import cache_pb2, device_pb2, models_pb2


class DeviceQueries:
    """Base of `Device` with all calls but the public ones that prepare."""

    def __init__(self, session: ReconnectingSession, name: str) -> None:
        self.name = name
        self._session = session

    @property
    def _connection(self) -> Connection:
        return self._session.connection

    @property
    def _request(self) -> device_pb2.DeviceRequest:
        return device_pb2.DeviceRequest(device=self.name)

    def __repr__(self) -> str:
        name = f"{self.name!r} " if self.name else ""
        return description(self, f"{name}of {self._session.service_name}", closed=self._session.closed)

    @cached_property
    def capabilities(self) -> Capabilities:
        """Return performance figures."""
        connection = self._connection
        return wire.to_capabilities(connection.call_idempotent(connection.device.GetCapabilities, self._request))

    @cached_property
    def type(self) -> DeviceType:
        """Return the type of the device."""
        connection = self._connection
        return DeviceType((connection.call_idempotent(connection.device.GetType, self._request)).type)

    @cached_property
    def version(self) -> str:
        """Return the version of driver and backends."""
        connection = self._connection
        return (connection.call_idempotent(connection.device.GetVersionString, self._request)).version

    @cached_property
    def interface_version(self) -> int:
        """Return the version of the HAL interface."""
        connection = self._connection
        return (connection.call_idempotent(connection.device.GetInterfaceVersion, self._request)).version

    @cached_property
    def interface_hash(self) -> str:
        """Return the HAL's hash of the interface version."""
        connection = self._connection
        return (connection.call_idempotent(connection.device.GetInterfaceVersion, self._request)).hash

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Return the extensions that the device supports."""
        connection = self._connection
        response = connection.call_idempotent(connection.device.GetSupportedExtensions, self._request)
        return tuple(map(wire.to_extension, response.extensions))

    def backends(self) -> list[BackendInfo]:
        """Return the device's backends, the preferred first: ready, skipped or failed, and why."""
        connection = self._connection
        response = connection.call_idempotent(connection.device.ListBackends, self._request)
        return list(map(wire.to_backend_info, response.backends))

    def supported_operations(self, model: ModelSource) -> list[bool]:
        """Return for each operation of model.main whether the device supports it.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        return list((self._query_support(model, explain=False)).supported)

    def explain(self, model: ModelSource) -> Placement:
        """Return where each operation of a model would run, with reasons. Nothing is prepared.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        return wire.to_placement((self._query_support(model, explain=True)).placement)

    def _query_support(self, source: ModelSource, *, explain: bool) -> device_pb2.GetSupportedOperationsResponse:
        model = load_model(source)

        def ask(connection: Connection) -> device_pb2.GetSupportedOperationsResponse:
            with model_message(connection, model) as message:
                request = device_pb2.GetSupportedOperationsRequest(
                    session=connection.session, device=self.name, model=message, explain=explain
                )
                return connection.call(connection.device.GetSupportedOperations, request)

        return self._session.repeat(ask, SharedDeadline(None))

    def _prepare_model(
        self, model: Model, options: PreparationArguments, call: PreparationCall, deadline: SharedDeadline
    ) -> PreparedModel:
        # hashing hundreds of megabytes takes too long for an event loop
        return self._prepare_spec(run_blocking(options.spec, model, self.name), call, deadline)

    def _prepare_spec(self, spec: PreparationSpec, call: PreparationCall, deadline: SharedDeadline) -> PreparedModel:
        def prepare_on(connection: Connection) -> PreparedModel:
            notify = prepare(connection, spec, call, deadline)
            return PreparedModel(self._session, spec, connection, notify)

        return self._session.repeat(prepare_on, deadline)

    def models(self) -> list[ModelEntry]:
        """Return the models that the service has by name, as far as this client may use them."""

        def ask(connection: Connection) -> models_pb2.ListModelsResponse:
            request = models_pb2.ListModelsRequest(session=connection.session)
            return connection.call(connection.models.List, request)

        response = self._session.repeat(ask, SharedDeadline(None))
        return list(map(wire.to_model_entry, response.models))

    def model(self, name: str, version: int | None = None, *, deadline: float | None = None) -> PreparedModel:
        """Return a model that the service has by name, prepared on the device that its configuration names.

        It stays the same when the service gets a newer version.

        Args:
            name: name of the model.
            version: version, by default the newest one that can be loaded.
            deadline: seconds from now, if the service has to load it first.

        Raises:
            HalError: there is no such model, or it cannot be used; MISSED_DEADLINE_*.
        """
        spec, end = NamedSpec.of(name, version), SharedDeadline(deadline)

        def prepare_on(connection: Connection) -> PreparedModel:
            response = prepare_named(connection, spec, end)
            return PreparedModel(self._session, spec.described(response), connection, response.notify)

        return self._session.repeat(prepare_on, end)

    def load_model(self, name: str) -> None:
        """Have the service load the current files of a model by name, for all clients.

        Raises:
            HalError: there is no such model, or it cannot be loaded; or this client may not do that.
        """

        def load(connection: Connection) -> models_pb2.LoadModelResponse:
            request = models_pb2.LoadModelRequest(session=connection.session, name=name)
            return connection.call(connection.models.Load, request)

        self._session.repeat(load, SharedDeadline(None))

    def unload_model(self, name: str) -> None:
        """Have the service take no more work for a model by name, until it is loaded. Prepared models go on.

        Raises:
            HalError: there is no such model, or this client may not do that.
        """

        def unload(connection: Connection) -> models_pb2.UnloadModelResponse:
            request = models_pb2.UnloadModelRequest(session=connection.session, name=name)
            return connection.call(connection.models.Unload, request)

        self._session.repeat(unload, SharedDeadline(None))

    def push_model(self, name: str, data: bytes, *, version: int | None = None, config: bytes | None = None) -> int:
        """Add a version of a model by name to the service, for all clients, and return the version.

        Args:
            name: name of the model.
            data: contents of the .tflite file.
            version: number of the version, by default one more than the largest.
            config: contents of its configuration file; None to keep the one that is there.

        Raises:
            HalError: the file cannot be imported, the version exists with other contents, a quota is exceeded, or this
                client may not do that.
        """
        pool = np.frombuffer(data, np.uint8)

        def push(connection: Connection) -> models_pb2.PushModelResponse:
            with connection.uploaded_bytes(pool) as memory:
                request = models_pb2.PushModelRequest(
                    session=connection.session, name=name, version=version or 0, memory=memory, config=config
                )
                return connection.call(connection.models.Push, request)

        return (self._session.repeat(push, SharedDeadline(None))).version

    def pull_model(self, name: str, version: int | None = None) -> PulledModel:
        """Return the files of a model by name, by default of the largest version, to a client that may push it.

        Raises:
            HalError: there is no such version, or this client may not do that.
        """

        def pull(connection: Connection) -> PulledModel:
            request = models_pb2.PullModelRequest(session=connection.session, name=name, version=version or 0)
            response = connection.call(connection.models.Pull, request)
            data = (connection.take_memories([response.memory]))[response.memory]
            return PulledModel(response.version, data.tobytes(), response.config)

        return self._session.repeat(pull, SharedDeadline(None))

    def remove_model(self, name: str, version: int | None = None) -> None:
        """Remove a version of a model by name from the service, by default all of them. Prepared models go on.

        Raises:
            HalError: there is no such version, or this client may not do that.
        """

        def remove(connection: Connection) -> models_pb2.RemoveModelResponse:
            request = models_pb2.RemoveModelRequest(session=connection.session, name=name, version=version or 0)
            return connection.call(connection.models.Remove, request)

        self._session.repeat(remove, SharedDeadline(None))

    def prepare_with_files(
        self,
        model: Model,
        folder: str | os.PathLike[str],
        token: bytes,
        *,
        preference: int | str = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int | str = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> PreparedModel:
        """Prepare a model with the cache files of the HAL, in a folder of the client.

        The files are saved by the first preparation. Later ones load the model from them, without sending it. A service
        rejects files that it has not sealed itself. Files that are missing or rejected are replaced.

        Args:
            model: a model.
            folder: folder of the files.
            token: 32 bytes that identify the model, the device, preference and priority. They name the files.
            preference: an ExecutionPreference or its name.
            priority: a Priority or its name.
            deadline: seconds from now.

        Raises:
            HalError: INVALID_ARGUMENT: the model, or the length of the token; or the preparation failed.
        """
        options = enum_value(ExecutionPreference, preference), enum_value(Priority, priority)
        spec = run_blocking(PreparationSpec.of, model, self.name, *options, token)
        spec = replace(spec, folder=ClientCacheFolder(Path(folder), token))
        return self._prepare_spec(spec, PreparationCall(), SharedDeadline(deadline))

    def cached(
        self,
        model: ModelSource | bytes,
        *,
        preference: int | str = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int | str = Priority.MEDIUM,
    ) -> CacheOutcome:
        """Return whether `prepare` would find a model in the cache (HIT), or why not (MISS). Prepares nothing.

        Args:
            model: a model or the path of a .tflite file, or the token of a model.
            preference: an ExecutionPreference or its name; part of the model's token.
            priority: a Priority or its name; part of the model's token.

        Raises:
            HalError: INVALID_ARGUMENT: the length of the token.
        """
        spec: PreparationSpec | None = None
        if not isinstance(model, bytes):
            options = enum_value(ExecutionPreference, preference), enum_value(Priority, priority)
            # hashing hundreds of megabytes takes too long for an event loop
            spec = run_blocking(PreparationSpec.of, load_model(model), self.name, *options, None)

        def ask(connection: Connection) -> cache_pb2.CheckCacheResponse:
            if spec is None:
                entry = stored_entry(cast(bytes, model), b"")
            else:
                entry = stored_entry(spec.token_for(device_version(connection, self.name)), spec.digest)
            request = cache_pb2.CheckCacheRequest(session=connection.session, device=self.name, cache=entry)
            return connection.call(connection.cache.Check, request)

        return wire.to_cache_outcome((self._session.repeat(ask, SharedDeadline(None))).outcome)

    def cache_counters(self) -> CacheCounters:
        """Return the counters of this client's entries in the compilation cache since the start of the service."""

        def ask(connection: Connection) -> cache_pb2.ListCacheResponse:
            return connection.call(connection.cache.List, cache_pb2.ListCacheRequest(session=connection.session))

        return wire.to_cache_counters((self._session.repeat(ask, SharedDeadline(None))).counters)

    def fence(self) -> OwnFence:
        """Create a fence for the client to signal, for `wait_for` of fenced executions.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: the session has too many fences.
        """
        return self._session.repeat(create_fence, SharedDeadline(None))

    def allocate(self, *, inputs: Roles = (), outputs: Roles = (), dimensions: Sequence[int] = ()) -> Buffer:
        """Allocate a driver-managed buffer: a tensor that stays on the device.

        Args:
            inputs: inputs that the buffer may be used for: pairs of a prepared model and a position or name.
            outputs: outputs that it may be used for, likewise.
            dimensions: its shape, if the roles leave it open; 0 is an unknown dimension.

        Raises:
            HalError: INVALID_ARGUMENT: roles and dimensions contradict each other; RESOURCE_EXHAUSTED_*.
        """
        roles = list(check_roles(inputs)), list(check_roles(outputs))

        def allocate_on(connection: Connection) -> Buffer:
            for model, _ in itertools.chain(*roles):
                # the service refuses the model of another device
                if isinstance(model, PreparedModel) and model.belongs_to(self._session):
                    model.prepare_on(connection, SharedDeadline(None))
            new = allocation(connection.session, self.name, *roles, dimensions)
            allocated = connection.call(connection.device.Allocate, new.request)
            return Buffer(connection, allocated, new.operand)

        return self._session.repeat(allocate_on, SharedDeadline(None))

    def close(self) -> None:
        """End the session. The service frees what it owned; an embedded service stops."""
        self._session.close()
