"""Explanations of a model's placement, as rows and as an HTML page."""
