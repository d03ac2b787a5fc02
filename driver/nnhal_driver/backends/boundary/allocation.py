"""Offer of an allocator to backends."""

import logging
from collections.abc import Iterable

from nnhal.errors import HalError, shorten
from nnhal_driver.backends.allocators import CustomAllocator
from nnhal_driver.backends.api import Backend, Support
from nnhal_driver.backends.boundary.calls import call, describe, invalid_answer

_log = logging.getLogger(__name__)


def offer_allocator(backends: Iterable[Backend], allocator: CustomAllocator) -> dict[str, str]:
    """Offer an allocator to backends. Return for each id why the backend does not use it, or ""."""
    refusals = {backend.id: _offer(backend, allocator) for backend in backends}
    for id_, refusal in refusals.items():
        answer = f"does not use it: {refusal}" if refusal else "uses it"
        _log.info("allocator of %s memory: backend %s %s", allocator.source.name, id_, answer)
    return refusals


def _offer(backend: Backend, allocator: CustomAllocator) -> str:
    """Return why a backend does not use an allocator, or ""."""
    try:
        answer: object = call(backend, "use_allocator", backend.use_allocator, allocator)
    except (HalError, MemoryError) as error:
        return shorten(str(error))
    match answer:
        case Support(reason=str(reason)):
            return shorten(reason)
    fault = f"returned {describe(answer)}; expected a Support"
    return invalid_answer(backend, "use_allocator", fault).reason
