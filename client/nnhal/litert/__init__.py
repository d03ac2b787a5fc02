"""LiteRT's interpreter, on a device: a drop-in replacement of `ai_edge_litert.interpreter`.

    from nnhal.litert import Interpreter

A program needs no other change. `model_file` reads what the interpreter tells about a file, `devices` finds the device,
`preparation` prepares a subgraph on it, `subgraph` has the values of its tensors, and `interpreter` is the public
interface. docs/litert.md tells what is the same as in LiteRT and what is not.
"""

from nnhal.litert.interpreter import (
    Delegate,
    Interpreter,
    InterpreterWithCustomOps,
    OpResolverType,
    SignatureRunner,
    load_delegate,
)

__all__ = [
    "Delegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "SignatureRunner",
    "load_delegate",
]
