"""`nnhal serve` in a process that reports its live objects, to detect leaks.

`python -m tests.end_to_end.support.counted_service serve ...` runs `nnhal serve ...`. On SIGUSR1 it writes the counts
to the file `$COUNTS`. Objects that exist before the service listens are frozen and not counted.
"""

import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

COUNTED = ("nnhal.", "nnhal_cache.", "nnhal_driver.", "nnhal_service.", "grpc.", "weakref.finalize")
"""Prefixes of the counted type names. Memory that counts against a quota has a finalizer."""

REMEMBERED = {
    "nnhal_service.metrics.series.CallSeries",  # for each kind of call and model, at most MAX_SERIES
    "nnhal_service.model_cache.seen_entries._Seals",  # for each entry of the cache, at most _MAX_ENTRIES
}
"""Types whose objects outlive sessions on purpose. Other tests check that their number is bounded."""


def count_objects() -> Counter[str]:
    """Count the live objects of this process by type."""
    gc.collect()
    types = map(type, gc.get_objects())
    names = (f"{type_.__module__}.{type_.__qualname__}" for type_ in types)
    return Counter(name for name in names if name.startswith(COUNTED) and name not in REMEMBERED)


def main() -> None:
    """Run the service process."""
    target = Path(os.environ["COUNTS"])

    def write_counts(number: int, frame: FrameType | None) -> None:
        unfinished = target.with_suffix(".new")
        unfinished.write_text(json.dumps(count_objects()))
        unfinished.rename(target)

    signal.signal(signal.SIGUSR1, write_counts)
    from nnhal_tools.cli import main as run_cli

    run_cli()


if __name__ == "__main__":
    main()
