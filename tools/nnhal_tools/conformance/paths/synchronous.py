"""Paths SYNC and SYNC-C."""

from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.path import register_path

register_path("SYNC", "GEN-04")(Target.execute)
register_path("SYNC-C", "GEN-04")(Target.execute_with_config)
