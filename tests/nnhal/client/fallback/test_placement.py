"""Placement and texts of divided models."""

import pytest

from nnhal.client.fallback.division import divide
from nnhal.client.fallback.placement import (
    OperationSide,
    PartitionSide,
    PlacedPart,
    combine_placements,
    describe_refusals,
    summary,
)
from nnhal.types import OperationPlacement, OperationType, Partition, Placement, Refusal
from tests.nnhal.client.fallback.models import branching, chain

NO = (Refusal("Accelerator", "too wide"),)


def placed(*backends: str, subgraph: int = 0) -> Placement:
    """Return the placement of a part, with one partition for each operation."""
    return Placement(
        tuple(Partition(subgraph, backend, (i,)) for i, backend in enumerate(backends)),
        tuple(OperationPlacement(subgraph, i, OperationType.ABS, backend) for i, backend in enumerate(backends)),
    )


def test_numbers_are_those_of_the_whole_model() -> None:
    divided = divide(chain(OperationType.ABS, OperationType.NEG, OperationType.FLOOR), {1})
    local = Placement(
        (Partition(0, "CpuRef", (0,)),),
        (OperationPlacement(0, 0, OperationType.NEG, "CpuRef", (Refusal("CpuAcc", "too small"),)),),
    )
    placement = combine_placements(divided, [placed("A"), local, placed("B")], {1: NO})
    assert placement.partitions == (
        PartitionSide(0, "A", (0,), 0),
        PartitionSide(0, "CpuRef", (1,), 1, True),
        PartitionSide(0, "B", (2,), 2),
    )
    reasons = (*NO, Refusal("CpuAcc (this machine)", "too small"))
    assert placement.operations == (
        OperationSide(0, 0, OperationType.ABS, "A"),
        OperationSide(0, 1, OperationType.NEG, "CpuRef", reasons, True),
        OperationSide(0, 2, OperationType.ABS, "B"),
    )
    assert placement.parts == (PlacedPart((0,), False), PlacedPart((1,), True), PlacedPart((2,), False))
    assert placement.crossing_bytes == 48
    assert "backend='CpuRef', is_fallback=True" in repr(placement.operations[1])


def test_subgraphs_have_their_numbers_in_the_whole_model() -> None:
    divided = divide(branching()[0], {1})
    parts = [
        Placement((), tuple(OperationPlacement(number, 0, 0, "A") for number in range(3))),
        Placement((Partition(3, "B", (0,)),), tuple(OperationPlacement(number, 0, 0, "B") for number in range(5))),
    ]
    placement = combine_placements(divided, parts, {1: NO})
    assert [(each.subgraph, each.operation, each.backend) for each in placement.operations] == [
        (0, 0, "A"),
        (0, 1, "B"),
        (1, 0, "A"),
        (2, 0, "A"),
        (3, 0, "B"),
        (4, 0, "B"),
        (5, 0, "B"),
        (6, 0, "B"),
    ]
    assert placement.partitions == (PartitionSide(5, "B", (0,), 1, True),)


def test_service_that_tells_no_placement() -> None:
    divided = divide(chain(OperationType.ABS, OperationType.NEG), {1})
    placement = combine_placements(divided, [Placement(), placed("CpuRef")], {1: NO})
    assert [each.backend for each in placement.operations] == ["unknown", "CpuRef"]


@pytest.mark.parametrize(
    ("unsupported", "expected"),
    [
        (
            {1},
            "1 of 3 operations run on this machine, because the device does not support it (Accelerator: too wide); "
            "48 bytes cross per execution, in 3 parts",
        ),
        (
            {0, 1, 2},
            "3 of 3 operations run on this machine, because the device does not support them (Accelerator: too wide); "
            "0 bytes cross per execution, in 1 part",
        ),
    ],
)
def test_summary(unsupported: set[int], expected: str) -> None:
    divided = divide(chain(OperationType.ABS, OperationType.NEG, OperationType.FLOOR), unsupported)
    assert summary(divided, dict.fromkeys(unsupported, NO)) == expected


def test_frequent_reasons_come_first() -> None:
    reasons = ["a", "b", "b", "c", "c", "c", "d", "e"]
    refusals = {i: (Refusal("X", reason),) for i, reason in enumerate(reasons)}
    assert describe_refusals(refusals) == "X: c; X: b; X: a; and 2 more reasons"
