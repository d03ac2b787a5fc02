"""Share of the operations that a backend runs: `python -m tests.backend_share REPORT.json [--backend CpuAcc]`.

`nnhal conformance --suite generated --vectors DIR --json REPORT.json` writes the report. Each vector tests one
operation: the only one of its model, apart from neutral ADDs. A vector counts for the backend if all operations of that
type ran on it.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.counts import counted_operations

PATH = "SYNC"
"""Path of execution whose results count, so that each vector counts once."""
SHARE = 0.6
"""Share of its vectors that must run on the backend for an operation to count."""


def shares(results: Iterable[Mapping[str, Any]], backend: str) -> dict[str, float]:
    """Return for each operation the share of its vectors that ran on the backend."""
    total, ours = Counter[str](), Counter[str]()
    for row in results:
        if row["path"] != PATH or row["status"] != Status.PASSED:
            continue
        placed = [(name, where) for name, where in row["operations"]]
        tested = counted_operations(Result(row["name"], row["suite"], PATH, Status.PASSED, operations=placed))
        if len(tested) == 1:
            total[tested[0]] += 1
            ours[tested[0]] += all(where == backend for name, where in placed if name == tested[0])
    return {name: ours[name] / total[name] for name in sorted(total)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--backend", default="CpuAcc")
    options = parser.parse_args()
    share_of = shares(json.loads(options.report.read_text())["results"], options.backend)
    enough = [name for name, share in share_of.items() if share >= SHARE]
    for name, share in share_of.items():
        print(f"{name:32} {share:6.0%}{'' if name in enough else '   below'}")
    print(f"{len(enough)} operations ran on {options.backend} in at least {SHARE:.0%} of their own vectors")


if __name__ == "__main__":
    main()
