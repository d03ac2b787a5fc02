"""A vector's models on a device: each is prepared once, however many checks run on it."""

from nnhal.v1 import types_pb2
from tools.conformance.check import CheckFailed, Judge, Result, Skipped
from tools.conformance.gate import Supported, prepare
from tools.conformance.target import PREPARE_MODEL, Prepared, Preparing, Target
from tools.conformance.vectors import Case


class Subject:
    """One case on one device: what was prepared for it is kept, because every path runs on the same models."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target, self.case = target, case
        self._models: dict[bool, types_pb2.Model] = {}
        self._supported: dict[bool, Supported] = {}
        self._prepared: dict[tuple[bool, Preparing], Prepared] = {}
        self._failures: dict[tuple[bool, Preparing], CheckFailed | Skipped] = {}

    def close(self) -> None:
        """Drops the models."""
        for model in self._models.values():
            self.target.release_pools(model.pools)
        if handles := [prepared.model for prepared in self._prepared.values()]:
            self.target.release(*handles)

    def tell_backends(self, result: Result) -> None:
        """Writes the backend of each operation into a result, where the device says so."""
        for prepared in self._prepared.values():
            if len(prepared.backends) == len(self.case.operations):
                result.operations = list(zip(self.case.operations, prepared.backends, strict=True))
                return

    def prepared(self, judge: Judge, how: Preparing = PREPARE_MODEL, *, unspecified: bool = False) -> bytes:
        """Handle of the prepared model; the gate is passed once for each of the four.

        Raises:
            CheckFailed, Skipped: the same again for every path.
        """
        key = (unspecified, how)
        if key in self._failures:
            raise self._failures[key]
        if key not in self._prepared:
            try:
                self._prepared[key] = self._prepare(judge, how, unspecified)
            except (CheckFailed, Skipped) as error:
                self._failures[key] = error
                raise
        return self._prepared[key].model

    def _prepare(self, judge: Judge, how: Preparing, unspecified: bool) -> Prepared:
        if unspecified not in self._models:
            self._models[unspecified] = self.target.own_pools(self.case.model(unspecified_outputs=unspecified))
        model = self._models[unspecified]
        if unspecified not in self._supported:
            self._supported[unspecified] = Supported.ask(self.target, model, judge)
        return prepare(self.target, model, judge, self._supported[unspecified], how)
