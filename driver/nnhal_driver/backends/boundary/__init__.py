"""Boundary to the code of backends: every call of a method, the translation of what it raises, the check of its answer.

A backend may be a plug-in that anybody wrote. No exception of its code may cost a thread, a callback or the answer to a
client, and an invalid answer costs that backend, not the call.
"""
