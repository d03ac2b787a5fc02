"""Commands that administer a running service, over its admin address."""
