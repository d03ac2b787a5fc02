"""Reports of a run for people and for CI: tables for the terminal, one HTML file, JUnit XML."""

from tools.conformance.report.junit import write_junit
from tools.conformance.report.page import write_html
from tools.conformance.report.terminal import tables

__all__ = ["tables", "write_html", "write_junit"]
