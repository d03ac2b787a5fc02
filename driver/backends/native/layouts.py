"""The layouts in which what a native plug-in compiled takes its inputs and gives its outputs: `NnhalRelayout`."""

from collections.abc import Mapping

from driver.backends.api import SubgraphView
from driver.backends.layout import Layout, Relayout
from driver.backends.native.library import Table
from driver.backends.native.marshalling import SubgraphStruct
from nnhal.errors import general_failure

_LAYOUTS = {0: Layout.NHWC, 1: Layout.NCHW, 2: Layout.NC4HW4}
_OF_MODELS = (Layout.NHWC, Layout.NCHW)


def layouts(table: Table, handle: int | None, struct: SubgraphStruct, view: SubgraphView) -> Mapping[int, Relayout]:
    """What the plug-in says, by operand of the graph.

    Raises:
        HalError: GENERAL_FAILURE: it cannot be.
    """
    found: dict[int, Relayout] = {}
    for one in table.listed("layouts", handle):
        operand = struct.operands[one.operand] if one.operand < len(struct.operands) else -1
        if operand in found or operand not in (*view.inputs, *view.outputs):
            raise general_failure(
                f"the backend wants a layout for operand {one.operand}; each input or output can have one, and no other"
            )
        model, own = _LAYOUTS.get(one.model), _LAYOUTS.get(one.own)
        if model not in _OF_MODELS or own is None:
            raise general_failure(f"the backend wants layout {one.own} for operand {operand}, from {one.model}")
        dimensions = view.graph.operands[operand].dimensions
        if len(dimensions) != 4 or (operand in view.outputs and 0 in dimensions):
            shape = list(dimensions)
            raise general_failure(f"the backend wants a layout for operand {operand}, whose shape {shape} has none")
        found[operand] = Relayout(model, own)
    return found
