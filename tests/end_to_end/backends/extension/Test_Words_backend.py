"""Vendor extension whose inputs and outputs are words of three bytes."""

from collections.abc import Sequence

import numpy as np

from nnhal_backend.v1 import (
    API_VERSION,
    AnyArray,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Extension,
    ExtensionOperandTypeInformation,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)

NAME = "com.example.words"
WORDS, WORD = 3, 4
"""Operand types: a tensor and a scalar."""
SWAP, FIRST = 1, 2
"""Operations: reverse the order of the words, and take the first word."""


class Words(Backend):
    """Backend for all operations of its extension."""

    id = "Words"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        """Accept operations of the extension."""
        return Support() if operation.extension == NAME else Support("not of my extension")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Return a subgraph that runs operation by operation."""
        return _Words(subgraph)

    def extensions(self) -> Sequence[Extension]:
        """Return the extension."""
        types = ExtensionOperandTypeInformation(WORDS, True, 3), ExtensionOperandTypeInformation(WORD, False, 3)
        return (Extension(NAME, types),)


class _Words(CompiledSubgraph):
    def __init__(self, subgraph: SubgraphView) -> None:
        self.subgraph = subgraph

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        values = dict(zip(self.subgraph.inputs, inputs, strict=True))
        for view in self.subgraph.operations:
            words = values[view.operation.inputs[0]]
            assert words is not None and words.dtype == np.dtype("V3"), words
            is_swap = view.type & 0xFFFF == SWAP
            values[view.operation.outputs[0]] = np.flip(words) if is_swap else words.reshape(-1)[0].reshape(())
        for operand, output in zip(self.subgraph.outputs, outputs, strict=True):
            value = values[operand]
            assert value is not None
            output.write(value)


def GetBackendId() -> str:
    """Return the id of the backend."""
    return Words.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the backend API."""
    return API_VERSION


BackendFactory = Words
