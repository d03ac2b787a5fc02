"""The backend CpuRef itself: it takes every operation that has a kernel."""

from driver.backends.api import OperationView, Support
from driver.backends.per_operation import PerOperationBackend, Workload
from driver.backends.reference.kernel import KERNELS
from driver.backends.registry import register
from driver.operations import SHAPE_RULES
from nnhal.types import operation_name


@register
class CpuRef(PerOperationBackend):
    """The reference backend."""

    id = "CpuRef"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        """Yes for every operation with a kernel, in all types that its signature allows."""
        if operation.type in KERNELS and operation.type in SHAPE_RULES:
            return Support()
        return Support(f"{operation_name(operation.type)} has no kernel")

    def workload(self, operation: OperationView) -> Workload:
        """The kernel of the operation's type."""
        return KERNELS[operation.type]
