"""Reports of a run for people and for CI: tables for the terminal, HTML, JUnit XML and JSON."""

from nnhal_tools.conformance.report.counts import backend_warnings, summary_line
from nnhal_tools.conformance.report.html_report import write_html
from nnhal_tools.conformance.report.json_report import write_figures, write_json
from nnhal_tools.conformance.report.junit_report import write_junit
from nnhal_tools.conformance.report.terminal_tables import summary_tables

__all__ = [
    "backend_warnings",
    "summary_line",
    "summary_tables",
    "write_figures",
    "write_html",
    "write_json",
    "write_junit",
]
