"""Executions for the tests: outputs as arrays, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from nnhal.tflite.model_metadata import TensorMetadata
from nnhal_tools.output_kinds.finding import Execution, OutputView
from nnhal_tools.output_kinds.recognition import recognize


def execution(*arrays: Any, image: tuple[int, ...] = (1, 8, 8, 3), labels: Sequence[str] = ()) -> Execution:
    """Return an execution whose outputs have the names a, b, c, ... and no metadata."""
    views = []
    for name, array in zip("abcdef", map(np.asarray, arrays), strict=False):
        views.append(OutputView(name, array.astype(np.float64), array.dtype.kind in "iu"))
    return Execution(views, [image], labels)


def described(
    source: Execution, metadata: Mapping[int, TensorMetadata], names: Mapping[int, str] = MappingProxyType({})
) -> Execution:
    """Return an execution with metadata and names of outputs, by position."""
    views = [
        replace(view, metadata=metadata.get(i, view.metadata), name=names.get(i, view.name))
        for i, view in enumerate(source.outputs)
    ]
    return replace(source, outputs=views)


def find(source: Execution) -> dict[str, Any]:
    """Return the kind, the reason and the JSON of an execution's outputs."""
    finding = recognize(source)
    return {"kind": finding.kind, "reason": finding.reason, **finding.as_json()} if finding else {"kind": None}
