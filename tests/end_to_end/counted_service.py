"""`nnhal serve` in a process that can be asked what objects it holds; for counting leaks.

`python -m tests.end_to_end.counted_service serve ...` is `nnhal serve ...`, and writes the counts to the file
`$COUNTS` on SIGUSR1. What was loaded before it listens is not counted.
"""

import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

COUNTED = ("cache.", "driver.", "grpc.", "nnhal.", "service.", "weakref.finalize")
"""What the names of types begin with. Memory that counts against a quota has a finaliser."""


def objects() -> Counter[str]:
    """How many objects of each type this process holds, garbage aside."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Counter(name for name in names if name.startswith(COUNTED))


def main() -> None:
    """The service process."""
    target = Path(os.environ["COUNTS"])

    def write(number: int, frame: FrameType | None) -> None:
        unfinished = target.with_suffix(".new")
        unfinished.write_text(json.dumps(objects()))
        unfinished.rename(target)

    signal.signal(signal.SIGUSR1, write)
    from tools.cli import main as nnhal

    nnhal()


if __name__ == "__main__":
    main()
