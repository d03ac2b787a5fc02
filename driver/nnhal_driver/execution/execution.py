"""Reusable executions (IExecution): one validated request that runs many times, one run at a time (hal-surface 8.4)."""

from functools import cached_property

from nnhal.errors import HalError
from nnhal.types import ExecutionConfig, ExecutionResult, Request
from nnhal_driver.execution.exclusive_use import ExclusiveUse
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel


class ReusableExecution:
    """Request that is validated once; each run reads the current contents of its pools. Thread safe.

    Raises:
        HalError: INVALID_ARGUMENT: the request or the configuration is invalid (V-REQ*, V-EXECARG*). Outputs that are
            invalid for fenced executions only are rejected when one is launched.
    """

    def __init__(self, prepared_model: PreparedModel, request: Request, config: ExecutionConfig) -> None:
        self.prepared_model = prepared_model
        self._request = prepared_model.validate(request, config)
        self._config = config
        self._exclusive = ExclusiveUse("another run of this execution is in progress")

    def execute_synchronously(self, call: ExecutionCall | None = None) -> ExecutionResult:
        """Run the request like `PreparedModel.execute_synchronously`.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; or the execution failed.
        """
        call = call or ExecutionCall()
        with self._exclusive:
            return self.prepared_model.execute_valid(self._request, self._config, call)

    def execute_fenced(self, arguments: FencedArguments) -> FencedExecution:
        """Launch a run like `PreparedModel.execute_fenced`. It is in progress until its fence ends.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; INVALID_ARGUMENT: the request is invalid for fenced
                executions; or the launch failed.
        """
        self._exclusive.acquire()
        try:
            if self._fenced_error is not None:
                with self.prepared_model.clearing_outputs(self._request):
                    raise self._fenced_error.with_traceback(None)
            return self.prepared_model.launch_valid(self._request, self._config, arguments, self._exclusive.release)
        except BaseException:
            self._exclusive.release()
            raise

    @cached_property
    def _fenced_error(self) -> HalError | None:
        """The reason why the request cannot run fenced, or None. Validated on the first fenced run."""
        try:
            self.prepared_model.validate(self._request, self._config, fenced=True)
        except HalError as error:
            return error
        return None
