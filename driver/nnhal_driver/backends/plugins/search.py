"""Search for dynamic backends. Each candidate is tested in a process of its own.

A faulty plug-in does not stop the service. Each candidate becomes a registration, or a report with the reason.
docs/backends.md is the guide for authors.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.options import OptionError, OptionValues
from nnhal_driver.backends.plugins.discovery import Candidate, find_candidates
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.backends.plugins.probe import TIMEOUT_S, ProbeResult, probe
from nnhal_driver.backends.registry import Registration, SearchResult
from nnhal_driver.backends.report import BUILT_IN, CandidateState, Report

_PARALLEL_PROBES = 4
"""Maximum number of concurrent child processes."""

_log = logging.getLogger(__name__)


def find(
    search_path: str,
    seconds: float = TIMEOUT_S,
    *,
    is_default: bool = False,
    option_sets: Sequence[OptionValues] = ({},),
) -> SearchResult:
    """Return the dynamic backends of a search path and of installed packages, in order.

    The first backend with an id keeps it; built-in backends come first.

    Args:
        search_path: absolute folders separated by colons, or "".
        seconds: timeout for loading one candidate.
        is_default: whether the search path is the default, which the operator did not choose.
        option_sets: options of each device.

    Raises:
        OptionError: a backend rejects an option.
    """
    result = _probe_all(list(find_candidates(search_path, is_default=is_default)), seconds, option_sets)
    for registration in result.registrations:
        _log.info("found backend %s in %s", registration.id, registration.origin)
    for report in result.reports:
        level = logging.WARNING if report.state is CandidateState.FAILED else logging.INFO
        name = f"{report.id} in {report.origin}" if report.id else report.origin
        _log.log(level, "backend %s %s: %s", name, report.state.value, report.reason)
    return result


def _probe_all(
    candidates: Sequence[Candidate | Report], seconds: float, option_sets: Sequence[OptionValues]
) -> SearchResult:
    def run(item: Candidate | Report) -> ProbeResult:
        return probe(item, seconds, option_sets) if isinstance(item, Candidate) else ProbeResult(item)

    with ThreadPoolExecutor(_PARALLEL_PROBES) as pool:
        results = list(pool.map(run, candidates))
    owners = dict.fromkeys(registry.registered_ids(), BUILT_IN)
    registrations: list[Registration] = []
    reports: list[Report] = []
    for candidate, probed in zip(candidates, results, strict=True):
        report = probed.report
        if probed.rejected_option and report.id not in owners:
            raise OptionError(probed.rejected_option, report.reason, report.id)
        if isinstance(candidate, Report) or report.state is CandidateState.FAILED:
            reports.append(report)
        elif report.id in owners:
            user = "a built-in backend" if owners[report.id] == BUILT_IN else owners[report.id]
            reason = f"the id {report.id} is taken by {user}; give it another"
            reports.append(replace(report, state=CandidateState.SKIPPED, reason=reason))
        else:
            owners[report.id] = candidate.origin
            registrations.append(_registration(candidate, report))
    return SearchResult(tuple(registrations), tuple(reports))


def _registration(candidate: Candidate, report: Report) -> Registration:
    def create(options: OptionValues) -> Backend:
        return load(candidate, options=options).backend

    return Registration(report.id, create, candidate.origin, report.api_version)
