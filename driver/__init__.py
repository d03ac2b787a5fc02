"""The device itself: validation, preparation, placement, execution, scheduling, backends. Knows no transport."""
