"""Fallback to the client's machine: preparation of models with operations that the device does not support."""

from nnhal.client.aio.concurrency import Lock, run_blocking
from nnhal.client.aio.device_queries import DeviceQueries
from nnhal.client.aio.grpc_calls import PreparationCall
from nnhal.client.aio.partitioned_model import PartitionedModel
from nnhal.client.aio.preparation import load_model
from nnhal.client.aio.prepared_model import PreparedModel
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.core.arguments import ModelSource
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.core.session import closed_error
from nnhal.client.fallback.division import DividedModel, divide
from nnhal.client.fallback.placement import Refusals, combine_placements
from nnhal.client.fallback.preparation import (
    PartRefusedError,
    PreparationArguments,
    failed_operations,
    find_refusals,
    may_be_unsupported,
    no_local_service,
    not_supported_anywhere,
    not_supported_as_a_whole,
)
from nnhal.client.fleet.targets import ResolvedTarget
from nnhal.errors import HalError
from nnhal.types import Model, Placement

_LOCAL_TIMEOUT_S = 10.0


class FallbackDevice(DeviceQueries):
    """Base of `Device` that prepares models of which the client's machine runs a part.

    A service on the client's machine starts with the first such model, and stops with the device. It is a process of
    its own, so that a fault of an engine does not end the client. A device of an embedded service has no fallback: it
    runs on the client's machine itself.
    """

    def __init__(self, session: ReconnectingSession, name: str) -> None:
        super().__init__(session, name)
        self._local: DeviceQueries | None = None
        self._opening_local = Lock()

    async def explain(self, model: ModelSource, *, fallback: bool = False) -> Placement:
        """Return where each operation of a model would run, with reasons. Nothing is prepared.

        Args:
            model: a model, or the path or the bytes of a .tflite file.
            fallback: whether the client's machine would run operations that the device does not support. If there are
                any, the result is a `FallbackPlacement` with the parts and their cost.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        if not fallback or self._session.is_embedded:
            return await super().explain(model)
        model = await load_model(model)
        refusals = find_refusals(await self._query_support(model, explain=True))
        if not refusals:
            return await super().explain(model)
        divided = await run_blocking(divide, model, refusals)
        local = await self._open_local(refusals)
        placements = [await (local if part.is_fallback else self).explain(part.model) for part in divided.parts]
        return combine_placements(divided, placements, refusals)

    async def _prepare_with_fallback(
        self, model: Model, options: PreparationArguments, call: PreparationCall, deadline: SharedDeadline
    ) -> PreparedModel | PartitionedModel:
        """Prepare a model, in parts if the device does not support all of it.

        The device is asked about single operations only if it fails, so that others models take no more time.
        """
        try:
            return await self._prepare_model(model, options, call, deadline)
        except HalError as error:
            failure = error
        # another embedded service would fail as well
        if call.cancelled or self._session.is_embedded or not may_be_unsupported(failure):
            raise failure
        refusals = dict(await self._find_refusals(model, failure))
        while True:
            divided = await run_blocking(divide, model, refusals)
            try:
                return await self._prepare_parts(divided, refusals, options, call, deadline)
            except PartRefusedError as refused:  # a smaller part remains for the device
                refusals |= refused.refusals

    async def _find_refusals(self, model: Model, failure: HalError) -> Refusals:
        """Return why the device did not prepare a model, for each operation."""
        try:
            response = await self._query_support(model, explain=True)
        except HalError:
            raise failure from None
        return find_refusals(response) or failed_operations(range(len(model.main.operations)), failure)

    async def _prepare_parts(
        self,
        divided: DividedModel,
        refusals: Refusals,
        options: PreparationArguments,
        call: PreparationCall,
        deadline: SharedDeadline,
    ) -> PartitionedModel:
        local = await self._open_local(refusals)
        prepared: list[PreparedModel] = []
        try:
            for part in divided.parts:
                part_options = options.for_operations(part.operations, is_fallback=part.is_fallback)
                device = local if part.is_fallback else self
                try:
                    prepared.append(await device._prepare_model(part.model, part_options, call, deadline))
                except HalError as error:
                    if not may_be_unsupported(error):
                        raise
                    if part.is_fallback:
                        raise not_supported_anywhere(refusals, error) from error
                    raise PartRefusedError(part, error) from error
        except BaseException:
            for each in prepared:
                await each.close()
            raise

        async def prepare_whole() -> PreparedModel:
            operations = tuple(range(len(divided.whole.main.operations)))
            own_options = options.for_operations(operations, is_fallback=True)
            try:
                return await local._prepare_model(divided.whole, own_options, PreparationCall(), NO_DEADLINE)
            except HalError as error:
                raise not_supported_as_a_whole(error) from error

        return PartitionedModel(divided, prepared, refusals, prepare_whole)

    async def _open_local(self, refusals: Refusals) -> DeviceQueries:
        """Return the device of the service on the client's machine.

        Raises:
            HalError: it does not start, or the device has been closed.
        """
        async with self._opening_local:
            if self._session.closed:
                raise closed_error()
            if self._local is None:
                session = ReconnectingSession(ResolvedTarget(None), _LOCAL_TIMEOUT_S)
                try:
                    await session.open()
                except HalError as error:
                    raise no_local_service(refusals, error) from error
                self._local = DeviceQueries(session, "")
            return self._local

    async def close(self) -> None:
        """End the session. The service frees what it owned; embedded services stop."""
        try:
            await super().close()
        finally:
            async with self._opening_local:
                if self._local is not None:
                    await self._local.close()
