"""Selection of the vectors and checks of a run: by name, and as a sample by operations and operand types."""

import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnhal_tools.conformance.registry import DeviceCheck
from nnhal_tools.conformance.vectors.case import Case


@dataclass(frozen=True)
class Selection:
    """Glob patterns of vectors and checks to include, () for all, and of vectors, checks and suites to leave out."""

    select: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def matches(self, *names: str) -> bool:
        """Return whether something with any of these names is selected."""
        return (not self.select or _match_any(names, self.select)) and not _match_any(names, self.exclude)

    def excludes_suite(self, suite: str) -> bool:
        """Return whether a whole suite is left out."""
        return _match_any((suite,), self.exclude)

    def matches_case(self, case: Case) -> bool:
        """Return whether a vector is selected by NAME, SPEC or SPEC/NAME."""
        return self.matches(case.name, case.spec, f"{case.spec}/{case.name}")

    def matches_check(self, check: DeviceCheck) -> bool:
        """Return whether a device check is selected by its id or its name."""
        return self.matches(check.id, check.name)


def _match_any(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


CaseSignature = tuple[tuple[str, ...], tuple[str, ...]]


def case_signature(case: Case) -> CaseSignature:
    """Return the operations and the operand types of main. Vectors with the same signature are alike."""
    return case.main_operations, case.operand_types


def sample_cases(cases: Iterable[Case], count: int) -> list[Case]:
    """Return the first `count` vectors of each signature, in order."""
    seen: Counter[CaseSignature] = Counter()
    sample = []
    for case in cases:
        seen[case_signature(case)] += 1
        if seen[case_signature(case)] <= count:
            sample.append(case)
    return sample
