"""Backend Unverified."""

from collections.abc import Sequence

from nnhal import litert_extension
from nnhal.types import Extension
from nnhal_driver.backends.api import OperationView, Support
from nnhal_driver.backends.litert.engine import engine_version, require_engine
from nnhal_driver.backends.litert.inlining import is_submodel
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload
from nnhal_driver.backends.registry import register
from nnhal_driver.backends.unverified.region import UnverifiedRegion, region_fault


@register
class Unverified(PerOperationBackend):
    """Backend for regions of the LiteRT extension that CpuAcc cannot verify. Only for models that are trusted.

    Raises:
        EngineMissingError: the package ai-edge-litert is not installed.
    """

    id = "Unverified"
    version = "1"

    def __init__(self) -> None:
        require_engine()

    def supports(self, operation: OperationView) -> Support:
        """Support every region that LiteRT itself accepts."""
        if not is_submodel(operation):
            return Support("it runs regions of the LiteRT extension only")
        return Support(region_fault(operation))

    def workload(self, operation: OperationView) -> Workload:
        """Return a region with interpreters of its own."""
        return UnverifiedRegion(operation).run

    def extensions(self) -> Sequence[Extension]:
        """Return the LiteRT extension."""
        return (litert_extension.EXTENSION,)

    def fingerprint(self) -> str:
        """Return the version of the engine."""
        return f"LiteRT {engine_version()}"
