"""Times of one piece of work, measured for its caller."""


class WorkTimes:
    """Times of one execution or preparation, which the driver fills in, also if the work fails.

    Attributes:
        queued_ns: wait for a slot, in nanoseconds; 0 if a slot was free.
        started_ns: time.perf_counter_ns() at the start of a preparation; 0 if it never started.
        device_ns: time from the slot to the end of the work.
    """

    # defaults of the class: each execution has an object of its own, and most of them set few attributes
    queued_ns = 0
    started_ns = 0
    device_ns = 0

    def end_unwanted(self) -> None:
        """Note that work has ended whose caller has been told another result before, for example a missed deadline."""
