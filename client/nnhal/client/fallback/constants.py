"""Constants of a part of a model: windows on the pools of the whole model, without a copy."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from nnhal.types import DataLocation, Memory, Model, Operand, OperandLifeTime, UnsetUnion

MAX_GAP_BYTES = 2**20
"""Largest gap of unused bytes inside a window. A model of many megabytes would otherwise be sent once for each part."""
ALIGNMENT = 64
"""Windows begin at multiples of this offset in a pool, so that constants in them remain aligned."""


class PoolWindows:
    """Windows on the pools of a model that cover the constants of a part.

    Args:
        model: the whole model.
        operands: operands of the part that may be constants.
        subgraphs: referenced subgraphs that belong to the part.

    Attributes:
        pools: the windows, which are the pools of the part.
    """

    def __init__(self, model: Model, operands: Iterable[Operand], subgraphs: Sequence[int]) -> None:
        referenced = chain.from_iterable(model.referenced[i].operands for i in subgraphs)
        used: dict[int, list[DataLocation]] = {}
        for operand in chain(operands, referenced):
            if operand.lifetime == OperandLifeTime.CONSTANT_POOL:
                used.setdefault(operand.location.pool_index, []).append(operand.location)
        self.pools: tuple[Memory | UnsetUnion, ...] = ()
        self._windows: dict[int, list[tuple[int, int]]] = {}
        for index in sorted(used):
            self._add(model.pools[index], index, used[index])

    def _add(self, pool: Memory | UnsetUnion, index: int, locations: Sequence[DataLocation]) -> None:
        """Add windows on a pool. Each is kept as its start and its number among `pools`."""
        assert isinstance(pool, Memory), "a device refuses other pools"
        windows: list[list[int]] = []
        for location in sorted(locations, key=lambda location: location.offset):
            start, end = location.offset, location.offset + location.length
            if windows and start <= windows[-1][1] + MAX_GAP_BYTES:
                windows[-1][1] = max(windows[-1][1], end)
            else:
                windows.append([start - start % ALIGNMENT, end])
        self._windows[index] = [(start, len(self.pools) + i) for i, (start, _) in enumerate(windows)]
        self.pools += tuple(Memory(pool.buffer, pool.offset + start, end - start, pool.prot) for start, end in windows)

    def move(self, operand: Operand) -> Operand:
        """Return an operand with the location of its constant in the windows."""
        if operand.lifetime != OperandLifeTime.CONSTANT_POOL:
            return operand
        location = operand.location
        start, number = max(window for window in self._windows[location.pool_index] if window[0] <= location.offset)
        return replace(operand, location=replace(location, pool_index=number, offset=location.offset - start))
