"""Models that are prepared on several services of a fleet, and whose executions spread over them."""
