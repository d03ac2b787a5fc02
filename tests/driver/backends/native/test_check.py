"""The check of a preparation, from C: `NnhalSubgraph.check`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal.errors import HalError, expired
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompileOptions, Sections, SubgraphView
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.graph import build_graphs, subgraph_view
from tests.driver.backends.native.building import build
from tests.driver.fake_backend import chain

METHODS: dict[str, Callable[[Backend, SubgraphView, CompileOptions], object]] = {
    "optimize": lambda backend, view, options: backend.optimize(view, options),
    "compile": lambda backend, view, options: backend.compile(view, options),
    "load": lambda backend, view, options: backend.load(view, Sections(b""), options),
}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    plugin = build(Path(__file__).with_name("checking.c"), tmp_path_factory.mktemp("checking") / "A_B_backend.so")
    return load(file_candidate(plugin)).backend


def view() -> SubgraphView:
    (graph,) = build_graphs(chain(Op.ADD, Op.ADD))
    return subgraph_view(graph, range(2), relaxed=False)


@pytest.mark.parametrize("method", METHODS)
def test_error_of_the_check_ends_each_method(backend: Backend, method: str) -> None:
    """The host raises the error of the check, not that of the plug-in."""
    calls: list[int] = []

    def end_at_the_third() -> None:
        calls.append(len(calls))
        if len(calls) >= 3:
            raise expired("too late")

    with pytest.raises(HalError) as caught:
        METHODS[method](backend, view(), CompileOptions(0, check=end_at_the_third))
    assert caught.value.reason == "too late"
    assert len(calls) == 4, "three from C, and one to get the error"


@pytest.mark.parametrize("method", METHODS)
def test_check_without_an_error_lets_it_go_on(backend: Backend, method: str) -> None:
    METHODS[method](backend, view(), CompileOptions(0))


def test_supports_has_no_check(backend: Backend) -> None:
    assert backend.supports(view().operations[0])
