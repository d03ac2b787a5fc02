"""Service with a defect: it hands the saved section of one backend to another. A test starts it like `nnhal`.

A proxy cannot inject this fault. The harness must detect it by the outputs alone.
"""

from collections.abc import Mapping
from typing import Any

from nnhal_driver.backends.api import Backend
from nnhal_driver.execution.plan import PartitionNode
from nnhal_driver.model_cache import plan_document
from nnhal_tools.cli import main

_step = plan_document._step


def _handed_to_another(
    row: Any, container: Any, graphs: Any, backends: Mapping[str, Backend], options: Any
) -> PartitionNode:
    ids = list(backends)
    others = {id_: backends[ids[i - 1]] for i, id_ in enumerate(ids)}
    return _step(row, container, graphs, others, options)


if __name__ == "__main__":
    plan_document._step = _handed_to_another
    main()
