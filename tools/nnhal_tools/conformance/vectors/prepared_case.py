"""Prepared models of a vector. Each model is prepared once, for all the checks that run on it."""

from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Result, Skipped
from nnhal_tools.conformance.device.options import PREPARE_MODEL, PreparationOptions
from nnhal_tools.conformance.device.preparation_gate import SupportedOperations, check_preparation
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.vectors.case import Case


class PreparedCase:
    """Vector on a device, with a cache of its prepared models, because all paths run on the same models."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target, self.case = target, case
        self._models: dict[bool, types_pb2.Model] = {}
        self._supported: dict[bool, SupportedOperations] = {}
        self._prepared: dict[tuple[bool, PreparationOptions], PreparationOutcome] = {}
        self._failures: dict[tuple[bool, PreparationOptions], CheckFailed | Skipped] = {}

    def close(self) -> None:
        """Release the models."""
        for model in self._models.values():
            self.target.release_pools(model.pools)
        if handles := [preparation.model for preparation in self._prepared.values()]:
            self.target.release(*handles)

    def set_backends(self, result: Result) -> None:
        """Write the backend of each operation into a result, and faults of backends, if the device reports them."""
        result.faults = list(dict.fromkeys(fault for each in self._prepared.values() for fault in each.faults))
        for preparation in self._prepared.values():
            if len(preparation.backends) == len(self.case.operations):
                result.operations = list(zip(self.case.operations, preparation.backends, strict=True))
                return

    def model_handle(
        self, recorder: CheckRecorder, options: PreparationOptions = PREPARE_MODEL, *, unspecified: bool = False
    ) -> bytes:
        """Return the handle of a prepared model. The model is prepared at the first call with these arguments.

        `unspecified`: the outputs have unspecified dimensions.

        Raises:
            CheckFailed: the preparation gate fails, now or earlier.
            Skipped: X1, now or earlier.
        """
        key = (unspecified, options)
        if key in self._failures:
            raise self._failures[key]
        if key not in self._prepared:
            try:
                self._prepared[key] = self._prepare(recorder, options, unspecified)
            except (CheckFailed, Skipped) as error:
                self._failures[key] = error
                raise
        return self._prepared[key].model

    def _prepare(self, recorder: CheckRecorder, options: PreparationOptions, unspecified: bool) -> PreparationOutcome:
        if unspecified not in self._models:
            model = self.case.model(unspecified_outputs=unspecified)
            self._models[unspecified] = self.target.upload_large_pools(model)
        model = self._models[unspecified]
        if unspecified not in self._supported:
            self._supported[unspecified] = SupportedOperations.query(self.target, model, recorder)
        return check_preparation(self.target, model, recorder, self._supported[unspecified], options)
