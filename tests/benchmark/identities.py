"""Workers of one identity each: their memory, and the time until a new identity has its first answer.

`python -m tests.benchmark.identities [COUNT ...]` starts a service for each count, by default 1, 10 and 100 identities.
They connect one after the other, and stay. The memory is what the processes do not share (USS), and what they need
together (PSS). The last column has the clients without workers of their own.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import nnhal
from nnhal_service.identity.tokens import create_token
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids
from tests.service.supervisor.hostile_service import VALUES, relu_model

MIB = 1024


def memory(pids: Sequence[int]) -> tuple[list[int], int]:
    """Return the KiB that each process does not share, and those that they need together."""
    own, together = [], 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        own.append(sizes["Private_Clean"] + sizes["Private_Dirty"])
        together += sizes["Pss"]
    return own, together


def run(count: int, folder: Path, *options: str) -> str:
    """Return the figures for some identities."""
    tokens = [create_token(f"client{number}") for number in range(count)]
    file = folder / "tokens"
    file.write_text("\n".join(line for _, line in tokens))
    file.chmod(0o600)
    service: Service = start_service(folder, "--tokens", str(file), *options)
    seconds = []
    with ExitStack() as stack:
        stack.callback(stop_service, service)
        model = relu_model()
        for token, _ in tokens:
            start = time.perf_counter()
            device = stack.enter_context(nnhal.connect(service.target, token=token))
            result = device.prepare(model).result(60).execute([VALUES])[0]
            seconds.append(time.perf_counter() - start)
            np.testing.assert_array_equal(result, VALUES)
        workers = worker_pids(service.process.pid)
        own, together = memory(workers)
    return (
        f"{len(workers):4d} workers  USS {statistics.median(own) / MIB:5.1f} MiB each  PSS {together / MIB:6.0f} MiB  "
        f"first answer {statistics.median(seconds) * 1e3:4.0f} ms, longest {max(seconds) * 1e3:4.0f} ms"
    )


def main() -> None:
    """Print a line for each count, with and without workers of their own."""
    for count in map(int, sys.argv[1:] or ("1", "10", "100")):
        for name, options in (("own", ()), ("shared", ("--no-worker-per-identity",))):
            with TemporaryDirectory() as folder:
                print(f"{count:4d} identities {name:6s} {run(count, Path(folder), *options)}", flush=True)


if __name__ == "__main__":
    main()
