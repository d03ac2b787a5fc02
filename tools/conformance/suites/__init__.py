"""The suites, one module or package each; see tools.conformance.registry."""
