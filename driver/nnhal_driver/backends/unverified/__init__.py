"""Unverified, a backend that runs regions of the LiteRT extension as they are, without verification.

CpuAcc refuses regions that it cannot verify, because LiteRT trusts a model: a wrong index makes it read or write
anywhere. A process that serves only the owner of the model may run them all the same. So an embedded service has this
backend after the others, and `nnhal serve` has it only if `--backends` names it.
"""

from nnhal_driver.backends.unverified import backend  # noqa: F401 - registers the backend
