"""The allocator of the settings, and the report on the backends that use it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nnhal_driver.backends.allocators import CustomAllocator, MemorySource, PageAllocator
from nnhal_driver.backends.report import CandidateState, Report
from nnhal_service.settings import AllocatorName

_SOURCES: Mapping[str, MemorySource] = {"huge-pages": MemorySource.HUGE_PAGES, "locked": MemorySource.LOCKED}


def create_allocator(name: AllocatorName) -> CustomAllocator | None:
    """Return the allocator with a name of the settings; None for the default, which backends choose."""
    return PageAllocator(_SOURCES[name]) if name in _SOURCES else None


def with_allocator(reports: Iterable[Report], refusals: Mapping[str, str]) -> tuple[Report, ...]:
    """Return reports that tell whether each backend uses the allocator of the settings, and why not.

    `refusals` has the reason, or "", by id; it is empty without an allocator.
    """
    return tuple(
        replace(
            report,
            reason=f"it does not use the allocator: {refusals[report.id]}" if refusals[report.id] else "",
            capabilities={**report.capabilities, "CustomAllocator": not refusals[report.id]},
        )
        if report.state is CandidateState.READY and report.id in refusals
        else report
        for report in reports
    )
