"""Proof that the harness can fail: its suites run against devices with one fault each.

A fault is a function in front of the real device, in a gRPC proxy; with it stand the ids that must catch it.
"""

from tools.conformance.selftest.command import main as main
