"""Calls that prepare a model. The synchronous client has its own form, because its calls must be cancelled by hand."""

from typing import Any

import grpc.aio

from nnhal.client.aio.connection import Connection
from nnhal.client.core.cache import is_session_lost
from nnhal.client.core.prepared_model import missing_notify_error
from nnhal.errors import HalError
from nnhal.v1 import device_pb2


class PreparationCall:
    """Calls of one preparation. Cancelling the task cancels them.

    Attributes:
        cancelled: False: a cancelled task does not go on.
    """

    cancelled = False

    async def run(
        self,
        connection: Connection,
        method: "grpc.aio.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
        request: object,
    ) -> device_pb2.Notify:
        """Make a call and return the result that it reports.

        Raises:
            HalError: the call failed without a result.
        """
        notify: device_pb2.Notify | None = None
        try:
            async for event in connection.stream(method, request):
                if event.WhichOneof("event") == "notify":
                    notify = event.notify
        except HalError as error:
            # an error of the launch is reported by notify first, which does not say that the session is lost
            if notify is None or is_session_lost(error):
                raise
        if notify is None:
            raise missing_notify_error()
        return notify
