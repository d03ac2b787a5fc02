"""Search for random graphs on which CpuAcc and CpuRef differ.

`python -m tests.driver.backends.litert.support.fuzzing SEED COUNT FILE` tests COUNT graphs in this process. FILE
always holds the graph that is being tested, so that it is known after a crash of the engine.
"""

import sys
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.comparison import assert_same_results
from tests.driver.backends.litert.support.random_graphs import Sample, graphs


def check_random_graphs(count: int, seed_number: int | None, last_graph: Path | None = None) -> Counter[Op]:
    """Compare the backends on random graphs, and return the operations that CpuAcc ran.

    Args:
        count: the number of graphs.
        seed_number: the seed, or None for the same graphs each time.
        last_graph: a file that receives each graph before it runs.
    """
    operations: Counter[Op] = Counter()

    @settings(
        max_examples=count,
        derandomize=seed_number is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(sample=graphs())
    def check(sample: Sample) -> None:
        if last_graph is not None:
            last_graph.write_text(repr(sample))
        operations.update(assert_same_results(sample))

    (check if seed_number is None else seed(seed_number)(check))()
    return operations


if __name__ == "__main__":
    check_random_graphs(int(sys.argv[2]), int(sys.argv[1]), Path(sys.argv[3]))
