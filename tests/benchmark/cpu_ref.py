"""How fast is CpuRef? Real models through the driver in this process, against LiteRT in the same run.

`python -m tests.benchmark.cpu_ref` takes turns, round by round: CpuRef with one BLAS thread, and LiteRT's default
interpreter with one thread. It tells medians over the rounds, and the median of the rounds' ratios, and marks a model
that takes more than `LIMIT` times what LiteRT takes. It lies below `tests` because it uses the driver, as no tool may.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from threadpoolctl import threadpool_limits

import nnhal.tflite
from nnhal.types import AnyArray, DataLocation, Memory, Request, RequestArgument, ReturnedPool
from tests.driver.one_operation import prepare
from tests.shared import SHARED

LIMIT = 12.0
"""CpuRef may take so many times what LiteRT takes."""


@dataclass(frozen=True)
class Workload:
    """A model to measure. `limited`: it is held to `LIMIT`; `calls`: of each side in one round."""

    name: str
    file: str
    limited: bool
    calls: int


WORKLOADS = (
    Workload("vww float", "vww_96_float.tflite", True, 60),
    Workload("mobilenet v2 uint8", "mobilenet_v2_1.0_224_quant.tflite", True, 4),
    Workload("kws int8", "kws_ref_model.tflite", False, 100),
)


@dataclass(frozen=True)
class Row:
    """A line of the report: medians over rounds in milliseconds, and the median of the rounds' ratios."""

    model: str
    cpu_ref_ms: float
    litert_ms: float
    ratio: float
    limit: float | None

    @property
    def too_slow(self) -> bool:
        """Whether the ratio is above the limit."""
        return self.limit is not None and self.ratio > self.limit


def litert(path: Path) -> tuple[Callable[[], object], AnyArray]:
    """One run of LiteRT, and the input that it is given."""
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    (detail,) = interpreter.get_input_details()
    data = np.random.default_rng(7).integers(0, 100, tuple(detail["shape"])).astype(detail["dtype"])
    interpreter.set_tensor(detail["index"], data)
    return interpreter.invoke, data


def cpu_ref(path: Path, data: AnyArray) -> Callable[[], object]:
    """One execution by the driver on CpuRef, from request to result."""
    prepared = prepare(nnhal.tflite.load(path)).prepared_model
    assert prepared is not None
    given = RequestArgument(False, DataLocation(0, 0, data.nbytes))
    request = Request((given,), (RequestArgument(False, DataLocation(1)),), (Memory.of(data), ReturnedPool()))
    return lambda: prepared.execute_synchronously(request)


def median_ms(call: Callable[[], object], calls: int) -> float:
    """Median of calls one after the other."""
    taken = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1e6


def measure(workload: Workload, rounds: int) -> Row:
    """Both sides in turn; a round before the first warms up."""
    path = SHARED / "models" / workload.file
    theirs, data = litert(path)
    ours = cpu_ref(path, data)
    pairs = [(median_ms(ours, workload.calls), median_ms(theirs, workload.calls)) for _ in range(rounds + 1)][1:]
    return Row(
        workload.name,
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
        LIMIT if workload.limited else None,
    )


def table(rows: Sequence[Row]) -> str:
    """The report as text."""
    lines = [f"{'model':20}{'CpuRef ms':>11}{'LiteRT ms':>11}{'ratio':>8}  at most"]
    for row in rows:
        limit = "-" if row.limit is None else f"{row.limit:g}{' EXCEEDED' if row.too_slow else ''}"
        lines.append(f"{row.model:20}{row.cpu_ref_ms:11.3f}{row.litert_ms:11.3f}{row.ratio:8.2f}  {limit}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often the two take turns (9)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args(arguments)
    if not (SHARED / "models").exists():
        print("CpuRef against LiteRT: not measured, ../shared/models is not present")
        return
    about = {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__, "threads": 1}
    print("CpuRef against LiteRT:", ", ".join(f"{name}: {value}" for name, value in about.items()), flush=True)
    with threadpool_limits(1, "blas"):
        rows = [measure(workload, options.rounds) for workload in WORKLOADS]
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
