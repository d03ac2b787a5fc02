"""Meaning of a model's outputs: classes, masks, boxes or images, as JSON, as a table, and drawn on the picture.

`recognition` has the kinds in order. Each is a function that returns a `Finding` if the names, the metadata or the
shapes of the outputs tell the kind without doubt, and None otherwise.
"""
