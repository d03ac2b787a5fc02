"""Built-in vectors."""

from nnhal_tools.conformance.vectors import builtin


def test_built_in_names_are_unique() -> None:
    names = [case.name for case in builtin.cases()]
    assert len(set(names)) == len(names) >= 12
