"""Reports of a run for people and for CI: tables for the terminal, HTML, JUnit XML and JSON."""
