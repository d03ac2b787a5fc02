"""Layouts of the inputs and outputs of a native plug-in's subgraph: `NnhalRelayout`."""

from collections.abc import Mapping

from nnhal.errors import general_failure
from nnhal_driver.backends.api import SubgraphView
from nnhal_driver.backends.layout import Layout, Relayout
from nnhal_driver.backends.native.library import FunctionTable
from nnhal_driver.backends.native.marshalling import SubgraphStruct

_LAYOUTS = {0: Layout.NHWC, 1: Layout.NCHW, 2: Layout.NC4HW4}
_MODEL_LAYOUTS = (Layout.NHWC, Layout.NCHW)


def read_layouts(
    table: FunctionTable, handle: int | None, struct: SubgraphStruct, view: SubgraphView
) -> Mapping[int, Relayout]:
    """Return the layouts that the plug-in declares, by operand of the graph.

    Raises:
        HalError: GENERAL_FAILURE: a declaration is invalid.
    """
    layouts: dict[int, Relayout] = {}
    for item in table.items("layouts", handle):
        operand = struct.operands[item.operand] if item.operand < len(struct.operands) else -1
        if operand in layouts or operand not in (*view.inputs, *view.outputs):
            raise general_failure(
                f"the backend declares a layout for operand {item.operand}; "
                "expected an input or output, and each at most once"
            )
        model, own = _LAYOUTS.get(item.model), _LAYOUTS.get(item.own)
        if model not in _MODEL_LAYOUTS or own is None:
            raise general_failure(
                f"the backend declares layouts {item.model} and {item.own} for operand {operand}; they are invalid"
            )
        dimensions = view.graph.operands[operand].dimensions
        if len(dimensions) != 4 or (operand in view.outputs and 0 in dimensions):
            raise general_failure(
                f"the backend declares a layout for operand {operand} with shape {list(dimensions)}; expected rank 4, "
                "with known dimensions for an output"
            )
        layouts[operand] = Relayout(model, own)
    return layouts
