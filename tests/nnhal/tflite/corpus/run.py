"""Runs models of the corpus in child processes, and starts another process when one has crashed."""

import fcntl
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.nnhal.tflite.corpus.result import Result

_ROOT = Path(__file__).parents[4]
_PROCESSES = 2
_HANG_S = 1800


def run(names: Iterable[str]) -> list[Result]:
    """Run models and return their results, in any order."""
    names = list(names)
    with ThreadPoolExecutor(_PROCESSES) as pool:
        return [
            result for part in pool.map(_run_part, (names[i::_PROCESSES] for i in range(_PROCESSES))) for result in part
        ]


def run_once(names: Iterable[str], folder: Path) -> list[Result]:
    """Run models, or return the results that another process has written to the folder. It waits for that process."""
    path = folder / "corpus-results"
    with (folder / "corpus-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            results: list[Result] = pickle.loads(path.read_bytes())
        else:
            results = run(names)
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_bytes(pickle.dumps(results))
            unfinished.rename(path)
    return results


def _run_part(names: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    while len(results) < len(names):
        results += _run_process(names[len(results) :])
    return results


def _run_process(names: Sequence[str]) -> list[Result]:
    """Run models in one process. The last result is that of the model that crashed it, if one did."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results"
        command = [sys.executable, "-m", "tests.nnhal.tflite.corpus.worker", str(path)]
        process = subprocess.run(
            command, input="\n".join(names), cwd=_ROOT, text=True, capture_output=True, timeout=_HANG_S, check=False
        )
        records = list(_records(path))
    results = [record for record in records if isinstance(record, Result)]
    if process.returncode == 0:
        return results
    if not records or isinstance(records[-1], Result):
        raise RuntimeError(f"the worker failed: {process.stderr[-4000:]}")
    name, step = records[-1]
    if process.returncode > 0:
        raise RuntimeError(f"the worker failed on {name}: {process.stderr[-4000:]}")
    return [*results, Result(name, crash=f"{step} (signal {-process.returncode})")]


def _records(path: Path) -> Iterator[Result | tuple[str, str]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return
