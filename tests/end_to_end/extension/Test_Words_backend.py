"""A vendor extension whose values come from clients and go back to them: words of three bytes."""

from collections.abc import Sequence

import numpy as np

from driver.backends.api import (
    API_VERSION,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from nnhal.types import AnyArray, Extension, ExtensionOperandTypeInformation

NAME = "com.example.words"
WORDS, WORD = 3, 4
"""Operand types: a tensor, and a scalar."""
SWAP, FIRST = 1, 2
"""Operations: the words in reverse order; the first word."""


class Words(Backend):
    """Takes all operations of its extension."""

    id = "Words"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        """By name."""
        return Support() if operation.extension == NAME else Support("not of my extension")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Operation by operation."""
        return _Words(subgraph)

    def extensions(self) -> Sequence[Extension]:
        """Its own."""
        types = ExtensionOperandTypeInformation(WORDS, True, 3), ExtensionOperandTypeInformation(WORD, False, 3)
        return (Extension(NAME, types),)


class _Words(CompiledSubgraph):
    def __init__(self, subgraph: SubgraphView) -> None:
        self.subgraph = subgraph

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        values = dict(zip(self.subgraph.inputs, inputs, strict=True))
        for view in self.subgraph.operations:
            given = values[view.operation.inputs[0]]
            assert given is not None and given.dtype == np.dtype("V3"), given
            is_swap = view.type & 0xFFFF == SWAP
            values[view.operation.outputs[0]] = np.flip(given) if is_swap else given.reshape(-1)[0].reshape(())
        for operand, output in zip(self.subgraph.outputs, outputs, strict=True):
            value = values[operand]
            assert value is not None
            output.write(value)


def GetBackendId() -> str:
    """Entry point."""
    return Words.id


def GetVersion() -> tuple[int, int]:
    """Entry point."""
    return API_VERSION


BackendFactory = Words
