"""Cost of an execution through `libneuralnetworks.so`, against the client in Python.

`python -m tests.benchmark.c_library` runs KWS on an embedded service on the same machine, alternating within a round.
An execution of the library is created, gets its arguments, is computed and freed, in five calls through ctypes. A
reusable one is only computed. Differences are taken round by round. The limit: 60 µs more than the client.
"""

import argparse
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nnhal
import nnhal.tflite
from nnhal import wire
from nnhal.embedded import EmbeddedService
from nnhal.types import AnyArray
from nnhal_ndk.build import build
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from nnhal_tools.conformance.ndk.model import LibraryModel
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import checked_median_us

MODEL = "kws_ref_model"
ADDED_US = 60.0
"""Microseconds that an execution of the library may take more than one of the client."""
COMPARED = {"library": "client", "reusable": "client", "library, burst": "client, burst"}

Call = Callable[[], bytes]


@dataclass
class LibraryCalls:
    """Executions of a compiled model with one input and one output.

    Attributes:
        library: the library.
        compilation: a finished compilation.
        x: the input.
        y: the output.
    """

    library: NdkLibrary
    compilation: int
    x: AnyArray
    y: AnyArray

    def bind(self, *, reusable: bool = False) -> int:
        """Return a new execution with its arguments."""
        execution = self.library.create("Execution_create", self.compilation)
        self.library.call("Execution_setReusable", execution, reusable)
        self.library.call("Execution_setInput", execution, 0, None, self.x.ctypes.data, self.x.nbytes)
        self.library.call("Execution_setOutput", execution, 0, None, self.y.ctypes.data, self.y.nbytes)
        return execution

    def one(self, compute: str, *arguments: int) -> Call:
        """Return a call that creates, computes and frees an execution."""
        library, (x, x_bytes), (y, y_bytes) = self.library, _region(self.x), _region(self.y)
        names = ("Execution_create", "Execution_setInput", "Execution_setOutput", compute, "Execution_free")
        create, set_input, set_output, run, free = (getattr(library, name) for name in names)
        handle = ctypes.c_void_p()
        pointer = ctypes.byref(handle)

        def call() -> bytes:
            create(self.compilation, pointer)
            execution = handle.value
            set_input(execution, 0, None, x, x_bytes)
            set_output(execution, 0, None, y, y_bytes)
            run(execution, *arguments)
            free(execution)
            return self.y.tobytes()

        return call

    def again(self, execution: int) -> Call:
        """Return a call that computes a reusable execution."""
        compute = self.library.Execution_compute

        def call() -> bytes:
            compute(execution)
            return self.y.tobytes()

        return call


def _region(array: AnyArray) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def _calls(stack: ExitStack) -> dict[str, Call]:
    service = EmbeddedService()
    stack.callback(service.close)
    os.environ["NNHAL_TARGET"] = service.target
    library = NdkLibrary(build(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
    model = nnhal.tflite.load(model_path(MODEL))
    prepared = stack.enter_context(nnhal.connect(service.target)).prepare(model).result()
    compilation = stack.enter_context(LibraryModel(library, wire.model_message(model))).compile()
    ((x,), (y,)) = (
        [np.ones(info.shape or (), info.dtype) for info in infos] for infos in (prepared.inputs, prepared.outputs)
    )
    through_library = LibraryCalls(library, compilation, x, y)
    client_burst = stack.enter_context(prepared.burst())
    burst = library.create("Burst_create", compilation)
    stack.callback(library.Burst_free, burst)
    reusable = through_library.bind(reusable=True)
    stack.callback(library.Execution_free, reusable)
    return {
        "client": lambda: bytes(prepared.execute([x])[0].data),
        "library": through_library.one("Execution_compute"),
        "reusable": through_library.again(reusable),
        "client, burst": lambda: bytes(client_burst.execute([x])[0].data),
        "library, burst": through_library.one("Execution_burstCompute", burst),
    }


def figures(rounds: int, count: int) -> Iterator[Figure]:
    """Yield the figures."""
    with ExitStack() as stack:
        calls = _calls(stack)
        expected = calls["client"]()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds):
            for name in list(calls)[:: -1 if number % 2 else 1]:
                times[name].append(checked_median_us(calls[name], count, expected))
    for name, values in times.items():
        yield Figure(name, values, "us")
    for name, bound in COMPARED.items():
        added = [own - other for own, other in zip(times[name], times[bound], strict=True)]
        yield Figure(f"{name}, more than {bound}", added, "us", ADDED_US)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the requests and rounds")
    rounds, count = (5, 100) if parser.parse_args(arguments).quick else (15, 300)
    show("KWS through the C library", lambda: figures(rounds, count))


if __name__ == "__main__":
    main()
