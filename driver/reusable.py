"""ReusableExecution: IExecution; a request that is frozen and run many times, one run at a time (hal-surface 8.4)."""

import threading
import time
from collections.abc import Hashable
from functools import cached_property

from driver.cancellation import Cancellation
from driver.fenced import FencedExecution, FencedLaunch
from driver.prepared_model import PreparedModel
from nnhal.errors import HalError, general_failure
from nnhal.types import OMITTED, ExecutionConfig, ExecutionResult, Request


class ReusableExecution:
    """A frozen request. It is judged once; what its pools hold is read anew by every run. Thread safe.

    Raises:
        HalError: INVALID_ARGUMENT: the request or the configuration is invalid (V-REQ*, V-EXECARG*). Outputs that only
            fenced executions forbid are refused when one is launched.
    """

    def __init__(self, prepared_model: PreparedModel, request: Request, config: ExecutionConfig) -> None:
        self._prepared_model = prepared_model
        self._request = prepared_model.validate(request, config)
        self._config = config
        self._busy = threading.Lock()

    def execute_synchronously(
        self, deadline_ns: int = OMITTED, cancellation: Cancellation | None = None, owner: Hashable = None
    ) -> ExecutionResult:
        """As PreparedModel.execute_synchronously.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; or the execution failed.
        """
        started_ns = time.perf_counter_ns()
        self._take()
        try:
            return self._prepared_model.execute_valid(
                self._request, self._config, deadline_ns, cancellation or Cancellation(), owner, started_ns
            )
        finally:
            self._busy.release()

    def execute_fenced(self, launch: FencedLaunch) -> FencedExecution:
        """As PreparedModel.execute_fenced. The run is in progress until its fence ends.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; INVALID_ARGUMENT: the request is not one for fenced
                executions; or the launch failed.
        """
        self._take()
        try:
            if self._unfit_for_fences is not None:
                raise self._unfit_for_fences.with_traceback(None)
            return self._prepared_model.launch_valid(self._request, self._config, launch, self._busy.release)
        except BaseException:
            self._busy.release()
            raise

    def _take(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise general_failure("another run of this execution is in progress")

    @cached_property
    def _unfit_for_fences(self) -> HalError | None:
        """Why the request cannot be executed fenced; judged when that is first wanted."""
        try:
            self._prepared_model.validate(self._request, self._config, fenced=True)
        except HalError as error:
            return error
        return None
