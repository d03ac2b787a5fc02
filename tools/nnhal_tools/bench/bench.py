"""A load test: subjects take turns at each level, round by round, so that noise of the machine meets all of them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from nnhal_tools.bench.load import LoadGenerator, Sample
from nnhal_tools.bench.results import LoadResult, summarize
from nnhal_tools.bench.specification import ClientTask, Level

Progress = Callable[[str], None]
"""Called before each measurement with a description of it."""


def run_bench(
    tasks: Sequence[ClientTask],
    levels: Sequence[Level],
    *,
    baseline: Callable[[ClientTask], ClientTask | None],
    rounds: int,
    duration_s: float,
    warmup_s: float,
    progress: Progress,
) -> list[LoadResult]:
    """Measure all subjects at all levels, in each of some rounds. The results are in the order of the tasks.

    `baseline` returns the task that one is compared with. `duration_s` are the seconds of each subject at each level,
    in all rounds together, and `warmup_s` those of calls before each measurement that do not count.

    Raises:
        BenchError: a client cannot run the model.
    """
    samples: dict[tuple[int, int], list[Sample]] = {}
    most = max(level.clients for level in levels)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="nnhal-bench-")))
        loads = []
        for task in tasks:
            progress(f"preparing {task.subject.label}")
            loads.append(stack.enter_context(closing(LoadGenerator(task, most, folder))))
        for number in range(rounds):
            for at, level in enumerate(levels):
                order = list(enumerate(loads))
                for subject, load in order if number % 2 == 0 else reversed(order):
                    progress(f"round {number + 1}: {load.subject.label}, {level.text}")
                    sample = load.sample(level, warmup_s, duration_s / rounds, number)
                    samples.setdefault((subject, at), []).append(sample)
    results = []
    for subject, task in enumerate(tasks):
        against = baseline(task)
        for at, level in enumerate(levels):
            other = None if against is None else samples[tasks.index(against), at]
            results.append(summarize(task.subject, level, samples[subject, at], other))
    return results
