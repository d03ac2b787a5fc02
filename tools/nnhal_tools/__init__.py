"""Programs on top of the contract: the command line, the demo and the conformance harness."""
