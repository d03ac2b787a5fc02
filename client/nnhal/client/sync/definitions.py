# Generated from aio/definitions.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Definition of requests with a call to the service; see `nnhal.client.core.definitions`."""

from nnhal.client.core.definitions import Arrays, RequestDefinition, RequestDefinitions, form_of
from nnhal.client.core.prepared_model import RemoteModel
from nnhal.client.sync.connection import Connection
from nnhal.errors import HalError


def define(
    definitions: RequestDefinitions, target: RemoteModel[Connection], arrays: Arrays, *, measure_timing: bool
) -> RequestDefinition | None:
    """Return the definition of an execution, which is made now if that is worthwhile; None if there is none.

    Args:
        definitions: the definitions of the target.
        target: the prepared model, or a burst of it.
        arrays: the checked inputs.
        measure_timing: whether the execution is measured.
    """
    connection, handle = target
    form = form_of(handle, arrays, measure_timing=measure_timing)
    if (definition := definitions.find(form)) is not None:
        return definition
    request = definitions.next_request(form, connection.session, handle, arrays, measure_timing=measure_timing)
    if request is None:
        return None
    try:
        response = connection.call(connection.prepared_model.Define, request)
    except HalError:  # an older service, or a limit; the execution itself reports what concerns it
        return None
    return definitions.add(form, connection, arrays, response)
