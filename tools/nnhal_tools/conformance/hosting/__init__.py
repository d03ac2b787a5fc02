"""Services that checks start themselves, with a plug-in that records what its host does and misbehaves on demand."""
