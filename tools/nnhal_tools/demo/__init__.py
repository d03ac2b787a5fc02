"""The demo: a small model that classifies handwritten digits, and digits to show it."""
