"""Device of a delegate: it compiles graphs, and gives programs another device if it is gone."""

import json
import logging
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import nnhal
from nnhal import litert_extension
from nnhal.client.core.arrays import Outputs
from nnhal.client.core.profile import ExecutionProfile
from nnhal.errors import DeadObjectError, HalError, SessionLostError
from nnhal.profiling import trace
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import TfliteGraph
from nnhal.tflite.import_model import import_graphs
from nnhal.tflite.report import ImportOutcome
from nnhal.tflite.shapes import Shapes
from nnhal.types import CacheState, Model
from nnhal_delegate.options import DelegateOptions

_log = logging.getLogger("nnhal.delegate")
_NODE = re.compile(r"operator (\d+) ")
"""Number of a node in the name of an operation, see `nnhal.tflite`."""


_OPERATION = re.compile(r"operation (\d+) of main")
"""Number of an operation in a message of the device."""


class RefusedNodes(Exception):
    """Nodes that the device does not run.

    Attributes:
        reasons: why, by the number of the node.
    """

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


class Program(NamedTuple):
    """A model, and its preparation, which may be in progress.

    Attributes:
        scalars: positions of the outputs that have rank 0 in LiteRT. An operand has none.
    """

    model: Model
    scalars: frozenset[int]
    preparation: "nnhal.Preparation[nnhal.PreparedModel]"

    @property
    def prepared(self) -> nnhal.PreparedModel:
        """The prepared model.

        Raises:
            HalError: the preparation failed.
        """
        return self.preparation.result()

    @property
    def output_shapes(self) -> list[tuple[int, ...] | None]:
        """Shapes of the outputs, as the device knows them: 0 is an unknown dimension, None or () an unknown rank."""
        operands = [self.model.main.operands[index] for index in self.model.main.output_indexes]
        if all(operand.dimensions and 0 not in operand.dimensions for operand in operands):
            return [operand.dimensions for operand in operands]
        return [info.shape for info in self.prepared.outputs]


class DelegateDevice:
    """Device of a delegate. Thread safe.

    Attributes:
        problem: why there is no device, or "".
    """

    def __init__(self, options: DelegateOptions) -> None:
        self.options = options
        self.problem = ""
        self._lock = threading.Lock()
        self._device: nnhal.Device | None = None
        self._local: nnhal.Device | None = None
        self._profiles: list[ExecutionProfile] = []
        self._extension = False
        try:
            self._device = nnhal.connect(client_name="libnnhal_delegate", **options.connection)
            self._extension = any(each.name == litert_extension.NAME for each in self._device.extensions)
        except DeadObjectError as error:
            if not options.falls_back:
                raise
            self.problem = str(error)
            _log.warning("LiteRT runs all nodes: %s", error)

    def compile(self, graph: TfliteGraph, shapes: Shapes) -> Program:
        """Import and prepare a graph. `shapes` are those of inputs, in place of those of the graph.

        Raises:
            RefusedNodes: nodes of the graph are not supported.
            HalError: the device is gone, and nothing replaces it.
        """
        assert self._device is not None
        model, scalars = self._import(graph, shapes)
        try:
            is_cached = self._is_cached(self._device, model)
            program = self._prepare(self._device, model, scalars)
            if not is_cached:
                program.preparation.result()
            return program
        except HalError as error:
            error.with_traceback(None)  # the preparation keeps it: its frames would keep this one, and the interpreter
            is_lost = isinstance(error, DeadObjectError | SessionLostError)
            if is_lost and not self.options.falls_back:
                raise
            reasons = {} if is_lost else self._unsupported(self._device, model, error)
            raise RefusedNodes(reasons or _for_all(graph, str(error))) from None

    def _import(self, graph: TfliteGraph, shapes: Shapes) -> tuple[Model, frozenset[int]]:
        """Return a model, and the positions of its outputs of rank 0."""
        try:
            model, report = import_graphs([graph], extension=self._extension, shapes=shapes)
        except TfliteError as error:
            raise RefusedNodes(_for_all(graph, str(error))) from None
        refused = (each for each in report.operators if each.outcome == ImportOutcome.REFUSED)
        reasons = {each.operator.index: each.reason for each in refused if each.operator.index >= 0}
        if model is None:
            raise RefusedNodes(reasons or _for_all(graph, report.refusals()[0]))
        outputs = (report.graph.tensors[index] for index in report.graph.outputs)
        return model, frozenset(position for position, tensor in enumerate(outputs) if not tensor.shape)

    def _unsupported(self, device: nnhal.Device, model: Model, error: HalError) -> dict[int, str]:
        """Return the nodes that the device does not support, with reasons, after a preparation has failed."""
        operations: dict[int, str] = {}
        try:
            for placed in device.explain(model).operations:
                if placed.subgraph == 0 and not placed.backend:
                    reasons = (f"{refusal.backend}: {refusal.reason}" for refusal in placed.refusals)
                    operations[placed.operation] = "; ".join(reasons) or "the device does not support it"
        except HalError:  # the model is invalid, because of the operation that the message names, if it names one
            operations = {int(number): str(error) for number in _OPERATION.findall(error.reason)}
        return {
            int(node): reason
            for number, reason in operations.items()
            for node in _NODE.findall(model.operation_names[number])
        }

    def _prepare(self, device: nnhal.Device, model: Model, scalars: frozenset[int]) -> Program:
        return Program(model, scalars, device.prepare(model, **self.options.preparation))

    def _is_cached(self, device: nnhal.Device, model: Model) -> bool:
        """Return whether a preparation is sure to succeed, so that the program need not wait for it."""
        options = {name: value for name, value in self.options.preparation.items() if name != "cache"}
        return self.options.preparation["cache"] and device.cached(model, **options).state == CacheState.HIT

    def replacement(self, program: Program, error: HalError) -> Program:
        """Return a program for a service on this machine, if the device is gone and the options allow it.

        Raises:
            HalError: `error`, otherwise.
        """
        if not self.options.falls_back or not isinstance(error, DeadObjectError | SessionLostError):
            raise error
        with self._lock:
            if self._local is None:
                _log.warning("a service on this machine replaces the device: %s", error)
                self._local = nnhal.connect()
        return self._prepare(self._local, program.model, program.scalars)

    def record(self, profile: ExecutionProfile) -> Outputs:
        """Keep the profile of an execution for the trace, and return its outputs."""
        self._profiles.append(profile)
        return profile.outputs

    def close(self) -> None:
        """Write the trace, and end the sessions."""
        if self.options.profile is not None:
            self.options.profile.write_text(json.dumps(trace(self._profiles)), "utf-8")
        for device in filter(None, (self._device, self._local)):
            with suppress(HalError):
                device.close()


def _for_all(graph: TfliteGraph, reason: str) -> dict[int, str]:
    indexes: Iterable[int] = (operator.index for operator in graph.operators)
    return dict.fromkeys(indexes, reason)
