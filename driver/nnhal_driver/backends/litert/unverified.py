"""Backend Unverified, which runs regions of the LiteRT extension as they are, without verification.

CpuAcc refuses regions that it cannot verify, because LiteRT trusts a model: a wrong index makes it read or write
anywhere. A process that serves only the owner of the model may run them all the same. So an embedded service has this
backend after the others, and `nnhal serve` has it only if `--backends` names it.
"""

from collections.abc import Sequence

from nnhal import litert_extension
from nnhal.types import Extension
from nnhal_driver.backends.api import OperationView, Support
from nnhal_driver.backends.litert.engine import engine_version, require_engine
from nnhal_driver.backends.litert.inlining import is_submodel
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.backends.litert.unverified_region import unverified_region_of
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload
from nnhal_driver.backends.registry import register


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
        try:
            unverified_region_of(operation)
        except Unsupported as error:
            return Support(error.reason)
        return Support()

    def workload(self, operation: OperationView) -> Workload:
        """Return a region, with the interpreter that `supports` has created."""
        return unverified_region_of(operation).run

    def extensions(self) -> Sequence[Extension]:
        """Return the LiteRT extension."""
        return (litert_extension.EXTENSION,)

    def fingerprint(self) -> str:
        """Return the version of the engine."""
        return f"LiteRT {engine_version()}"
