"""The device under test: calls through the generated stubs, and what they return."""
