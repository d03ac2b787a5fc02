"""Choice of the nodes of a graph that the device runs."""

import logging
from collections.abc import Sequence

from nnhal_delegate.device import DelegateDevice, RefusedNodes
from nnhal_delegate.graph import HostGraph
from nnhal_delegate.kernel import Kernel

_log = logging.getLogger("nnhal.delegate")


class NodeSelection:
    """Choice of the nodes of one graph. LiteRT divides the chosen ones into partitions, which become kernels.

    A partition that cannot run as it is loses nodes, and LiteRT divides the others again.

    Attributes:
        graph: the graph.
    """

    def __init__(self, device: DelegateDevice) -> None:
        self.graph = HostGraph()
        self._device = device
        self._kernels: dict[tuple[int, ...], Kernel] = {}

    def chosen(self) -> Sequence[int]:
        """Return the nodes that are not refused."""
        if self._device.problem:
            return []
        return [node for node in self.graph.operators if node not in self.graph.refusals]

    def examine(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Prepare a partition. Return False if nodes of it are refused instead.

        Raises:
            HalError: the device is gone.
        """
        if (key := tuple(nodes)) not in self._kernels:
            try:
                self._kernels[key] = Kernel(self._device, self.graph.partition(nodes, inputs, outputs))
            except RefusedNodes as refusal:
                self.graph.refusals.update(refusal.reasons)
                return False
        return True

    def report(self) -> None:
        """Log the choice, and the reasons of refusals."""
        total, refusals = len(self.graph.operators), self.graph.refusals
        chosen = self.chosen()
        kernels = sum(1 for nodes in self._kernels if set(nodes) <= set(chosen))
        plural = "" if kernels == 1 else "s"
        _log.info("the device runs %d of %d nodes, in %d kernel%s", len(chosen), total, kernels, plural)
        for node, reason in sorted(refusals.items()):
            _log.info("LiteRT runs node %d (%s): %s", node, self.graph.operators[node].name, reason)

    def take(self, nodes: Sequence[int]) -> Kernel:
        """Return the kernel of an examined partition."""
        return self._kernels.pop(tuple(nodes))

    def close(self) -> None:
        """Free the kernels that were not taken."""
        for kernel in self._kernels.values():
            kernel.close()
