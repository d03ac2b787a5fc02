"""Table of ids."""

from collections import Counter

import pytest

from nnhal_tools.conformance import registry, suites
from nnhal_tools.conformance.check import CheckFailed, Skipped
from nnhal_tools.conformance.ids import CHECKS, SUITES, validate_id

COUNTS = {
    **{"COM": 3, "PREP": 6, "BASIC": 11, "GEN": 35, "VALMODEL": 25, "VALREQ": 11, "BURST": 5, "CACHE": 31},
    **{"CACHESEC": 5, "MEMDOM": 69, "QOS": 19, "STATIC": 3, "EXTRA": 27, "HOST": 19, "RESIL": 20, "X": 12},
}


def test_table_has_every_id_of_the_checklist() -> None:
    counts = Counter(check.rstrip("0123456789").rstrip("-") for check in CHECKS)
    assert {name: counts[name] for name in COUNTS} == COUNTS
    assert set(counts) == {*COUNTS, "NNHAL"}
    assert {"GEN-07", "X12", "MEMDOM-69"} <= set(CHECKS)


def test_unknown_ids_are_rejected() -> None:
    with pytest.raises(ValueError, match="GEN-36"):
        validate_id("GEN-36")
    with pytest.raises(ValueError, match="X0"):
        Skipped("X0", "")
    with pytest.raises(ValueError, match="EXTRA-99"):
        CheckFailed("EXTRA-99", "", "", "")
    with pytest.raises(ValueError, match="NNHAL-1"):
        registry.check("NNHAL-1")
    with pytest.raises(ValueError, match="other"):
        registry.vector_check("other")


def test_checks_have_known_suites_and_unique_names() -> None:
    suites.load()
    assert {check.suite for check in registry.DEVICE_CHECKS} | set(registry.VECTOR_CHECKS) <= set(SUITES)
    names = [check.name for check in registry.DEVICE_CHECKS]
    assert len(set(names)) == len(names)
