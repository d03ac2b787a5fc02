"""The paths SYNC and SYNC-C."""

from tools.conformance.paths.path import path
from tools.conformance.target import Target

path("SYNC", "GEN-04")(Target.execute)
path("SYNC-C", "GEN-04")(Target.execute_with_config)
