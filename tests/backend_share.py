"""How many operations a backend really runs: `python -m tests.backend_share REPORT.json [--backend CpuAcc]`.

REPORT.json is what `nnhal conformance --suite generated --vectors DIR --json REPORT.json` writes. A vector's own
operation is the one that its model is about: the only one, neutral ADDs aside. A vector counts for the backend when all
operations of that type ran there.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.conformance.check import Result, Status
from tools.conformance.report.counts import operations_of

PATH = "SYNC"
"""Each vector counts once: on this path of execution."""
SHARE = 0.6
"""Of its vectors that must have run on the backend for an operation to count."""


def shares(results: Iterable[Mapping[str, Any]], backend: str) -> dict[str, float]:
    """For each operation the share of its own vectors in which the backend ran it."""
    all_, ours = Counter[str](), Counter[str]()
    for row in results:
        if row["path"] != PATH or row["status"] != Status.PASSED:
            continue
        placed = [(name, where) for name, where in row["operations"]]
        own = operations_of(Result(row["name"], row["suite"], PATH, Status.PASSED, operations=placed))
        if len(own) == 1:
            all_[own[0]] += 1
            ours[own[0]] += all(where == backend for name, where in placed if name == own[0])
    return {name: ours[name] / all_[name] for name in sorted(all_)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--backend", default="CpuAcc")
    options = parser.parse_args()
    found = shares(json.loads(options.report.read_text())["results"], options.backend)
    enough = [name for name, share in found.items() if share >= SHARE]
    for name, share in found.items():
        print(f"{name:32} {share:6.0%}{'' if name in enough else '   below'}")
    print(f"{len(enough)} operations ran on {options.backend} in at least {SHARE:.0%} of their own vectors")


if __name__ == "__main__":
    main()
