"""Which vectors and checks a run takes: by name, and a sample by operations and types."""

import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.conformance.registry import DeviceCheck
from tools.conformance.vectors import Case


@dataclass(frozen=True)
class Selection:
    """Glob patterns. `select`: empty for everything. `exclude`: what is left out of it."""

    select: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def takes(self, *names: str) -> bool:
        """Whether something with any of these names is taken."""
        return (not self.select or _matches(names, self.select)) and not _matches(names, self.exclude)

    def takes_case(self, case: Case) -> bool:
        """A vector goes by NAME, SPEC and SPEC/NAME."""
        return self.takes(case.name, case.spec, f"{case.spec}/{case.name}")

    def takes_check(self, check: DeviceCheck) -> bool:
        """A check without vectors goes by its id and its name."""
        return self.takes(check.id, check.name)


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


Signature = tuple[tuple[str, ...], tuple[str, ...]]


def signature(case: Case) -> Signature:
    """What makes two vectors alike: the operations and the operand types of main."""
    return case.main_operations, case.types


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """The first `count` vectors of each signature, in order."""
    seen: Counter[Signature] = Counter()
    taken = []
    for case in cases:
        seen[signature(case)] += 1
        if seen[signature(case)] <= count:
            taken.append(case)
    return taken
