"""The backend CpuRef, which supports every operation that has a kernel."""

from nnhal_driver.backends.api import OperationView, Support
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload
from nnhal_driver.backends.reference.kernel import KERNELS
from nnhal_driver.backends.registry import register
from nnhal_driver.operations import SHAPE_RULES


@register
class CpuRef(PerOperationBackend):
    """Reference backend: one numpy kernel for each operation."""

    id = "CpuRef"
    version = "1"
    _divides = True

    def supports(self, operation: OperationView) -> Support:
        """Return support for every operation that has a kernel, in all types that its signature allows."""
        if operation.type in KERNELS and operation.type in SHAPE_RULES:
            return Support()
        return Support(f"{operation.graph.operation_name(operation.type)} has no kernel")

    def workload(self, operation: OperationView) -> Workload:
        """Return the kernel of the operation."""
        return KERNELS[operation.type]
