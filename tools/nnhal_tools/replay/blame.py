"""Search for the operation that makes a model differ, or that makes it slow, by comparison with a reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnhal.recording.comparison import OutputDifference, compare_outputs
from nnhal.recording.tensor_difference import expose_intermediates, isolate_operations
from nnhal.types import AnyArray, Model, SpanKind, operation_name

if TYPE_CHECKING:
    from nnhal.client import Device


@dataclass(frozen=True)
class Blame:
    """An operation that computes something else than the reference from the same inputs.

    Attributes:
        operation: its number in main.
        name, backend: its type, and the backend that runs it.
        difference: of its first output that differs.
    """

    operation: int
    name: str
    backend: str
    difference: OutputDifference

    def __str__(self) -> str:
        measured = self.difference.measured
        return (
            f"operation {self.operation} ({self.name} on {self.backend}), "
            f"by up to {measured.maximum:.6g} {measured.unit}"
        )


class ReferenceRun:
    """Values of all operands of a model on a reference device, for given inputs.

    Raises:
        HalError: the reference cannot run the model.
    """

    def __init__(self, reference: "Device", model: Model, inputs: Sequence[AnyArray | None]) -> None:
        exposed = expose_intermediates(model)
        self.model = model
        self.inputs = inputs
        self.operands = exposed.main.output_indexes
        with reference.prepare(exposed).result() as prepared:
            self.values = [np.asarray(value) for value in prepared.execute(list(inputs))]

    def first_difference(self, device: "Device") -> Blame | None:
        """Return the first operation that differs on a device; None if none does when it runs alone.

        Raises:
            HalError: the device cannot run the operations one by one.
        """
        main = self.model.main
        with device.prepare(isolate_operations(self.model)).result() as prepared:
            actual = [np.asarray(value) for value in prepared.execute([*self.inputs, *self.values])]
            backends = {each.operation: each.backend for each in prepared.placement.operations if each.subgraph == 0}
        compared = compare_outputs(self.model, self.operands, actual, self.values)
        wrong = {self.operands[each.output]: each for each in compared if not each.is_allowed}
        for number, operation in enumerate(main.operations):
            for output in operation.outputs:
                if output in wrong:
                    name = operation_name(operation.type, self.model.extension_names)
                    return Blame(number, name, backends.get(number, ""), wrong[output])
        return None


def slowest_operation(device: "Device", reference: "Device", model: Model, inputs: Sequence[AnyArray | None]) -> str:
    """Return the operation that takes longer on a device than on the reference by most, in words; "" if none does.

    Raises:
        HalError: one of them cannot run the model.
    """
    own, others = (_times(each, model, inputs) for each in (device, reference))
    excess, number = max(((time - others.get(i, 0.0), i) for i, time in own.items()), default=(0.0, 0))
    if excess <= 0:
        return ""
    name = operation_name(model.main.operations[number].type, model.extension_names)
    return f"operation {number} ({name}): {own[number]:,.0f} us, {others.get(number, 0.0):,.0f} us on the reference"


def _times(device: "Device", model: Model, inputs: Sequence[AnyArray | None]) -> dict[int, float]:
    """Return the shortest time of each operation of main over some executions, in microseconds."""
    times: dict[int, float] = {}
    with device.prepare(model).result() as prepared:
        for _ in range(3):
            for span in prepared.profile(list(inputs)).spans:
                if span.kind == SpanKind.OPERATION and span.subgraph == 0:
                    (number,) = span.operations
                    times[number] = min(times.get(number, float("inf")), span.duration_ns / 1e3)
    return times
