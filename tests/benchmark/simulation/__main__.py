"""Simulation of large fleets: `python -m tests.benchmark.simulation`, see docs/scale.md."""

import argparse
import time
from pathlib import Path

from tests.benchmark.simulation.picture import draw
from tests.benchmark.simulation.scenarios import SCENARIOS


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"by default all: {', '.join(SCENARIOS)}")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--pictures", type=Path, default=Path("build/simulation"), metavar="DIR")
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    for name in options.scenarios or SCENARIOS:
        start = time.perf_counter()
        result = SCENARIOS[name](options.hosts, options.clients)
        seconds = time.perf_counter() - start
        print(f"{name}: {result.fleet.loop.count} events, {result.fleet.loop.now:.0f} s, simulated in {seconds:.0f} s")
        for what, text in result.figures.items():
            print(f"  {what:44}{text}")
        if result.fleet.latencies:
            path = options.pictures / f"{name}.svg"
            path.write_text(draw(result.fleet.history, result.events), "utf-8")
        print(flush=True)


if __name__ == "__main__":
    main()
