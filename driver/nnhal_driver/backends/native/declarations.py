"""Declarations of a native plug-in for the inputs and outputs of a subgraph: layouts, and memory of its own."""

from collections.abc import Mapping, Sequence

from nnhal.errors import general_failure
from nnhal_driver.backends.layout import Layout, Relayout
from nnhal_driver.backends.native.library import FunctionTable
from nnhal_driver.backends.native.marshalling import SubgraphStruct

_LAYOUTS = {0: Layout.NHWC, 1: Layout.NCHW, 2: Layout.NC4HW4}
_MODEL_LAYOUTS = (Layout.NHWC, Layout.NCHW)


def read_layouts(table: FunctionTable, handle: int | None, struct: SubgraphStruct) -> Mapping[int, Relayout]:
    """Return the layouts that the plug-in declares, by operand of the graph. The host checks the shapes.

    Raises:
        HalError: GENERAL_FAILURE: a declaration is invalid.
    """
    layouts: dict[int, Relayout] = {}
    for item in table.items("layouts", handle):
        operand = struct.boundary.get(item.operand)
        if operand is None or operand in layouts:
            raise general_failure(
                f"the backend declares a layout for operand {item.operand}; "
                "expected an input or output, and each at most once"
            )
        model, own = _LAYOUTS.get(item.model), _LAYOUTS.get(item.own)
        if model not in _MODEL_LAYOUTS or own is None:
            raise general_failure(
                f"the backend declares layouts {item.model} and {item.own} for operand {operand}; they are invalid"
            )
        layouts[operand] = Relayout(model, own)
    return layouts


def read_device_operands(table: FunctionTable, handle: int | None, struct: SubgraphStruct) -> Sequence[int]:
    """Return the operands of the graph that the plug-in uses in its own memory. Raises as `read_layouts`."""
    numbers: Sequence[int] = table.items("device_operands", handle)
    for number in numbers:
        if number not in struct.boundary:
            raise general_failure(
                f"the backend declares its own memory for operand {number}; expected an input or output"
            )
    return [struct.boundary[number] for number in numbers]
