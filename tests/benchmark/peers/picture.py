"""Picture of a comparison: latency and throughput of each server, as bars."""

from collections.abc import Sequence
from pathlib import Path

from nnhal_tools.bench.results import LoadResult

_OWN, _OTHER, _FLOOR = "#2563eb", "#9ca3af", "#d1d5db"


def draw(results: Sequence[LoadResult], title: str, file: Path) -> None:
    """Draw the median latency with the fewest clients, and the throughput with the most.

    Args:
        results: the results.
        title: the title.
        file: an .svg or .png file.
    """
    import matplotlib.pyplot as plt

    levels = sorted({result.level.clients for result in results})
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    few = [result for result in results if result.level.clients == levels[0]]
    many = [result for result in results if result.level.clients == levels[-1]]
    _bars(axes[0], few, [each.latency_us["p50"] for each in few], f"median latency of {few[0].level.text}, us")
    _bars(axes[1], many, [each.calls_per_s.median for each in many], f"calls per second of {many[0].level.text}")
    figure.suptitle(title)
    figure.savefig(file)
    plt.close(figure)


def _bars(axes: object, results: Sequence[LoadResult], values: Sequence[float], label: str) -> None:
    names = [result.subject.label for result in results]
    colors = [_OWN if name.startswith("nnhal") else _FLOOR if name.startswith("LiteRT") else _OTHER for name in names]
    bars = axes.barh(names, values, color=colors)  # type: ignore[attr-defined]
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)  # type: ignore[attr-defined]
    axes.invert_yaxis()  # type: ignore[attr-defined]
    axes.set_xlabel(label)  # type: ignore[attr-defined]
    axes.spines[["top", "right"]].set_visible(False)  # type: ignore[attr-defined]
    axes.margins(x=0.15)  # type: ignore[attr-defined]
