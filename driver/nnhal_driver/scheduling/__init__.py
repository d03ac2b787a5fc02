"""Admission, worker threads, timers, deadlines and cancellation."""
