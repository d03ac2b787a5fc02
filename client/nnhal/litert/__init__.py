"""LiteRT's interpreter, on a device: a drop-in replacement of `ai_edge_litert.interpreter`.

    from nnhal.litert import Interpreter

A program needs no other change. `CompiledModel` replaces that of `ai_edge_litert.compiled_model` in the same way.
`model_file` reads what the file tells, `devices` finds the device, `preparation` prepares a subgraph on it, `local` has
LiteRT run what no device runs, `subgraph` has the values of its tensors, `interpreter` and `compiled_model` are the
public interfaces. docs/litert.md tells what is the same as in LiteRT and what is not.
"""

from nnhal.litert.compiled_model import CompiledModel, TensorBuffer
from nnhal.litert.interpreter import (
    Delegate,
    Interpreter,
    InterpreterWithCustomOps,
    OpResolverType,
    SignatureRunner,
    load_delegate,
)

__all__ = [
    "CompiledModel",
    "Delegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "SignatureRunner",
    "TensorBuffer",
    "load_delegate",
]
