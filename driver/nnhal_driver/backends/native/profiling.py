"""Profiling context of a native plug-in: `profiling_begin`, `profiling_end` and `NnhalProfile`."""

import ctypes as c
import logging
from collections.abc import Callable

from nnhal.errors import exception_text
from nnhal_driver.backends.api import Profile, ProfilingContext
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.native.library import FunctionTable

_log = logging.getLogger(__name__)


class NativeProfilingContext(ProfilingContext):
    """Passes profiled executions on to a plug-in.

    Args:
        table: returns the plug-in's functions. The context does not keep them, because the device keeps the context.
    """

    def __init__(self, table: Callable[[], FunctionTable]) -> None:
        self._table = table

    def begin(self, execution: int) -> None:
        """Tell the plug-in."""
        self._table().hook("profiling_begin", execution)

    def end(self, execution: int, profile: Profile) -> None:
        """Tell the plug-in, which may report spans."""
        if not self._table().has("profiling_end"):
            return

        def span(_: int, name: bytes, start_ns: int, duration_ns: int) -> None:
            try:
                profile.span(name.decode(errors="replace"), start_ns, duration_ns)
            except BaseException as error:  # it cannot pass through C
                _log.warning("a span of a native backend is lost: %s", exception_text(error))

        struct = abi.ProfileStruct(c.sizeof(abi.ProfileStruct), None, abi.SpanFunction(span))
        self._table().call("profiling_end", execution, c.byref(struct))
