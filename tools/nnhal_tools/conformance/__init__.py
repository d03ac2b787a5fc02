"""Conformance harness: the checks of the vendor test suite, against any server that implements the contract.

The harness uses the generated stubs alone, because a client that repairs mistakes would hide them. It imports neither
the driver nor the service. Check ids (GEN-14) and allowances (X1) are those of the vendor test suite, as restated in
the conformance checklist; docs/conformance.md lists them.
"""
