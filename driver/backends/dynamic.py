"""Dynamic backends: finds them, tries each in a process of its own, and registers what works.

Nothing that a plug-in does wrong stops the service: each candidate ends as a registration, or as a report that says why
not. docs/backends.md is the guide for authors.
"""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from driver.backends import registry
from driver.backends.api import Backend
from driver.backends.discovery import Candidate, candidates
from driver.backends.loading import load
from driver.backends.probe import SECONDS, probe
from driver.backends.registry import Found, Registration
from driver.backends.report import BUILT_IN, Report, State

_AT_ONCE = 4
"""Child processes."""

_log = logging.getLogger(__name__)


def find(search_path: str, seconds: float = SECONDS) -> Found:
    """The dynamic backends of a search path and of installed packages, in order.

    An id belongs to the first that has it, built-in backends before all.

    Args:
        search_path: absolute folders with colons between them; "" for none.
        seconds: that each candidate has to load.
    """
    everything = list(candidates(search_path))
    found = _judged(everything, seconds)
    for one in found.registrations:
        _log.info("found backend %s in %s", one.id, one.origin)
    for report in found.reports:
        level = logging.WARNING if report.state is State.FAILED else logging.INFO
        name = f"{report.id} in {report.origin}" if report.id else report.origin
        _log.log(level, "backend %s %s: %s", name, report.state.value, report.reason)
    return found


def _judged(everything: Sequence[Candidate | Report], seconds: float) -> Found:
    owners = dict.fromkeys(registry.ids(), BUILT_IN)
    registrations: list[Registration] = []
    reports: list[Report] = []
    for candidate, report in _probed(everything, seconds):
        if candidate is None or report.state is State.FAILED:
            reports.append(report)
        elif report.id in owners:
            reports.append(_taken(report, owners[report.id]))
        else:
            owners[report.id] = candidate.origin
            registrations.append(_registration(candidate, report))
    return Found(tuple(registrations), tuple(reports))


def _probed(everything: Sequence[Candidate | Report], seconds: float) -> Iterable[tuple[Candidate | None, Report]]:
    """Each candidate with its report, several tried at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tried = {one: pool.submit(probe, one, seconds) for one in everything if isinstance(one, Candidate)}
    for one in everything:
        yield (one, tried[one].result().report) if isinstance(one, Candidate) else (None, one)


def _taken(report: Report, owner: str) -> Report:
    where = "a built-in backend" if owner == BUILT_IN else owner
    reason = f"the id {report.id} is taken by {where}; give it another"
    return Report(
        report.id, State.SKIPPED, report.origin, reason, report.version, report.api_version, report.capabilities
    )


def _registration(candidate: Candidate, report: Report) -> Registration:
    def make() -> Backend:
        return load(candidate).backend

    major, minor = map(int, report.api_version.split("."))
    return Registration(report.id, make, candidate.origin, (major, minor))
