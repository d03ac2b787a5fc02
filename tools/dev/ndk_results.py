"""Result codes of the functions of `libneuralnetworks.so` in the tests of the library.

`python -m tools.dev.ndk_results` runs these tests, which takes minutes, and records the codes for docs/ndk.md.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.api.functions import FUNCTIONS, Function
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, short_name

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "data" / "ndk_results.json"

Results = Mapping[str, Mapping[str, int]]
"""Number of tests in which a function returned a result code, by the names of both."""


def recorded_results() -> Results:
    """Return the committed results."""
    results: Results = json.loads(RESULTS.read_text("utf-8"))
    return results


class ResultRecorder:
    """Plug-in of pytest that records the result codes of each function."""

    def __init__(self) -> None:
        self._tests: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the calls of libraries that are loaded within the context."""
        load = NdkLibrary.__init__

        def load_recording(library: NdkLibrary, path: Path) -> None:
            load(library, path)
            entries = library._functions
            entries.update({name: self._recording(name, entry) for name, entry in entries.items()})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NdkLibrary, "__init__", load_recording)
            yield

    def _recording(self, name: str, entry: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            result = entry(*arguments)
            code = ResultCode(result) if _FUNCTIONS[name].result == "int" else ResultCode.NO_ERROR
            test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
            self._tests[name][code.name].add(test)
            return result

        return call

    def counts(self) -> Results:
        """Return the numbers of tests, in the order of functions and codes."""
        return {
            name: {code.name: len(self._tests[name][code.name]) for code in ResultCode if self._tests[name][code.name]}
            for name in _FUNCTIONS
        }


_FUNCTIONS: dict[str, Function] = {short_name(function.name): function for function in FUNCTIONS}


def count() -> Results:
    """Run the tests of the library, except the nightly ones, and return the results that they saw.

    Raises:
        SystemExit: a test failed.
    """
    recorder = ResultRecorder()
    with recorder.watching():
        tests = ROOT / "tests" / "nnhal_ndk"
        ignored = f"--ignore={tests / 'test_sources.py'}"  # it checks the committed results
        status = pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not nightly", ignored, str(tests)])
    if status != pytest.ExitCode.OK:
        raise SystemExit("the tests of the library fail")
    return recorder.counts()


def main() -> None:
    """Record the results."""
    RESULTS.write_text(json.dumps(count(), indent=1) + "\n")


if __name__ == "__main__":
    main()
