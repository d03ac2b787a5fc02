"""Program whose first models for the GPU are compiled at the same time. It prints how many compute the right results.

python -m tests.driver.backends.gpu.first_models
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

from nnhal_driver.backends.gpu.engine import GpuMemory, GpuSettings
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from tests.driver.backends.gpu.models import IMAGE, OPTIONS, convolution, view_of
from tests.driver.one_operation import execute, prepare

COUNT = 4


def main() -> None:
    """Compile and run a model on each of some threads."""
    expected = execute(prepare(convolution()), [IMAGE])[1][0]
    views, memory, barrier = [view_of(convolution()) for _ in range(COUNT)], GpuMemory(), Barrier(COUNT)

    def run(number: int) -> bool:
        barrier.wait()
        subgraph = GpuSubgraph(views[number], OPTIONS, GpuSettings(), memory)
        barrier.wait()
        return np.allclose(memory.to_host(subgraph.compute([memory.to_own(IMAGE)])[0]), expected, rtol=1e-4)

    with ThreadPoolExecutor(COUNT) as threads:
        print("right", sum(threads.map(run, range(COUNT))), flush=True)


if __name__ == "__main__":
    main()
