"""A service that is wrong inside: what one backend saved is handed to another. Started like `nnhal`, by a test.

A proxy cannot do this; it shows that the harness needs no other sign of it than what comes back over the contract.
"""

from collections.abc import Mapping
from typing import Any

from driver.backends.api import Backend
from driver.caching import model
from driver.plan import Step
from tools.cli import main

_step = model._step


def _handed_to_another(row: Any, container: Any, graphs: Any, backends: Mapping[str, Backend], options: Any) -> Step:
    ids = list(backends)
    others = {id_: backends[ids[i - 1]] for i, id_ in enumerate(ids)}
    return _step(row, container, graphs, others, options)


if __name__ == "__main__":
    model._step = _handed_to_another
    main()
