"""Placement of a model that runs partly on the client's machine, and texts about it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nnhal.client.fallback.division import DividedModel, Part
from nnhal.types import OperationPlacement, Partition, Placement, Refusal, operation_name

Refusals = Mapping[int, tuple[Refusal, ...]]
"""For each operation of main that the device does not support, the reasons of its backends."""

THIS_MACHINE = "this machine"
_MAX_REASONS = 3


@dataclass(frozen=True, slots=True, repr=False)
class OperationSide(OperationPlacement):
    """Placement of one operation on the device or on the client's machine.

    Attributes:
        is_fallback: whether the client's machine runs it. `refusals` then begins with the reasons of the device.
    """

    is_fallback: bool = False

    def __repr__(self) -> str:
        values = f"subgraph={self.subgraph}, operation={self.operation}, backend={self.backend!r}"
        refusals = f", refusals={self.refusals!r}" if self.refusals else ""
        return f"OperationSide({operation_name(self.type)}, {values}, is_fallback={self.is_fallback}{refusals})"


@dataclass(frozen=True, slots=True)
class PartitionSide(Partition):
    """Operations that a backend of the device or of the client's machine runs as a unit.

    Attributes:
        part: number of the part that it belongs to.
        is_fallback: whether the client's machine runs it.
    """

    part: int = 0
    is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Operations of main that run without the client in between.

    Attributes:
        operations: their positions.
        is_fallback: whether the client's machine runs them.
    """

    operations: tuple[int, ...]
    is_fallback: bool


@dataclass(frozen=True, slots=True, repr=False)
class FallbackPlacement(Placement):
    """Placement of a model of which the client's machine runs a part.

    Its partitions are `PartitionSide`, and its operations are `OperationSide`.

    Attributes:
        parts: in order of execution.
        crossing_bytes: bytes of intermediate results that each execution sends to the device and receives from it; None
            if the shape of one is not known.
        summary: one line on what the client's machine runs, and why.
    """

    parts: tuple[PlacedPart, ...] = ()
    crossing_bytes: int | None = 0
    summary: str = ""


def combine_placements(divided: DividedModel, placements: Sequence[Placement], refusals: Refusals) -> FallbackPlacement:
    """Return the placement of a divided model, given those of its parts."""
    pairs = list(zip(divided.parts, placements, strict=True))
    operations: dict[tuple[int, int], OperationSide] = {}
    for part, placement in pairs:
        for operation in _operations(divided, part, placement, refusals):
            operations.setdefault((operation.subgraph, operation.operation), operation)
    return FallbackPlacement(
        tuple(each for number, pair in enumerate(pairs) for each in _partitions(number, *pair)),
        tuple(operations[key] for key in sorted(operations)),
        tuple(PlacedPart(part.operations, part.is_fallback) for part in divided.parts),
        divided.crossing_bytes,
        summary(divided, refusals),
    )


def _operations(divided: DividedModel, part: Part, placement: Placement, refusals: Refusals) -> Iterator[OperationSide]:
    for each in placement.operations:
        subgraph, operation = part.subgraphs[each.subgraph], each.operation
        reasons = each.refusals
        if part.is_fallback:
            reasons = tuple(replace(each, backend=f"{each.backend} ({THIS_MACHINE})") for each in reasons)
        if each.subgraph == 0:
            operation = part.operations[operation]
            reasons = (*refusals.get(operation, ()), *reasons)
        yield OperationSide(subgraph, operation, each.type, each.backend, reasons, part.is_fallback)
    if not placement.operations:  # the service does not tell
        for i in part.operations:
            type_ = divided.whole.main.operations[i].type
            yield OperationSide(0, i, type_, "unknown", refusals.get(i, ()), part.is_fallback)


def _partitions(number: int, part: Part, placement: Placement) -> Iterator[PartitionSide]:
    for each in placement.partitions:
        operations = tuple(part.operations[i] for i in each.operations) if each.subgraph == 0 else each.operations
        yield PartitionSide(part.subgraphs[each.subgraph], each.backend, operations, number, part.is_fallback)


# ---- Texts ----------------------------------------------------------------------------------------------


def summary(divided: DividedModel, refusals: Refusals) -> str:
    """Return one line on what the client's machine runs, why, and at what cost."""
    local, total = len(divided.fallback_operations), len(divided.whole.main.operations)
    number = divided.crossing_bytes
    cost = "an unknown number of bytes crosses" if number is None else f"{number:,} bytes cross"
    parts = f"in {len(divided.parts)} part{'s' * (len(divided.parts) != 1)}"
    return (
        f"{local} of {total} operations run on {THIS_MACHINE}, because the device does not support "
        f"{'them' if len(refusals) > 1 else 'it'} ({describe_refusals(refusals)}); "
        f"{cost} per execution, {parts}"
    )


def describe_refusals(refusals: Refusals) -> str:
    """Return the reasons of a device, the most frequent first."""
    counts = Counter(f"{each.backend}: {each.reason}" for reasons in refusals.values() for each in reasons)
    texts = [text for text, _ in counts.most_common(_MAX_REASONS)]
    more = len(counts) - len(texts)
    return "; ".join(texts) + (f"; and {more} more reasons" if more else "")
