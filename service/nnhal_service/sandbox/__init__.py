"""Sandbox of the processes that run models: they give up what they do not need, before they serve clients.

A model or a plug-in that takes over such a process then cannot read the files of the user, connect to other machines or
processes, or use the parts of the kernel where most of its faults were found. docs/security.md states the limits.
"""
