"""Every public member of LiteRT's interpreter: the same programs with LiteRT and with nnhal."""

import pytest

from nnhal import litert
from tests.nnhal.litert.programs import PROGRAMS, Program, differences

litert_interpreter = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.mark.filterwarnings("ignore:LiteRT runs model in this process")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # LiteRT's finalizer of a Delegate
@pytest.mark.parametrize(
    "program",
    [pytest.param(each, id=f"{member}-{each.__name__}") for member, each_of in PROGRAMS.items() for each in each_of],
)
def test_programs_observe_the_same(program: Program) -> None:
    expected = list(program(litert_interpreter))
    assert expected
    actual = list(program(litert))
    assert list(differences(expected, actual)) == []
