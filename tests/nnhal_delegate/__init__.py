"""Tests of the delegate in hosts in Python and C."""
