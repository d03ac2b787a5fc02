"""File of a model with a state."""

from tests.nnhal.tflite.build import Op, Tensor, build, options


def counting() -> bytes:
    """Return a file with a variable, to which each execution adds its input."""
    x, total, sum_ = Tensor((2,), name="x"), Tensor((2,)), Tensor((2,), name="y")
    resource = Tensor((), "RESOURCE", name="resource")
    handle = Op("VAR_HANDLE", [], [resource], options("VarHandle", container=b"", sharedName=b"total"))
    read = Op("READ_VARIABLE", [resource], [total], options("ReadVariable"))
    add = Op("ADD", [x, total], [sum_], options("Add"))
    assign = Op("ASSIGN_VARIABLE", [resource, sum_], [], options("AssignVariable"))
    return build(handle, read, add, assign, inputs=[x], outputs=[sum_])
