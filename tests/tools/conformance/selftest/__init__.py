"""Self-test of the harness: its suites run against devices with one fault each.

A fault is a function in a gRPC proxy in front of the real device. It is registered with the ids that must catch it.
"""

from tests.tools.conformance.selftest.command import main as main
