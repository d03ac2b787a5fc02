"""Order of operations: programs add them in any order, and the HAL takes them in an order of execution."""

import heapq
from collections.abc import Sequence

from nnhal.types import Operation
from nnhal_ndk.results import bad_data


def execution_order(operations: Sequence[Operation], available: set[int]) -> list[int]:
    """Return the positions of operations in an order of execution, which keeps the given order where possible.

    Each operand is written at most once. The `available` ones are not written by operations.

    Raises:
        NdkError: BAD_DATA: operations depend on each other, or on a value that nothing writes.
    """
    readers: dict[int, list[int]] = {}
    missing = []
    for position, operation in enumerate(operations):
        needed = {operand for operand in operation.inputs if operand not in available}
        missing.append(len(needed))
        for operand in needed:
            readers.setdefault(operand, []).append(position)
    ready = [position for position, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for operand in operations[position].outputs:
            for reader in readers.pop(operand, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(ready, reader)
    if len(order) != len(operations):
        raise bad_data("operations depend on each other in a circle, or read a value that nothing writes")
    return order
