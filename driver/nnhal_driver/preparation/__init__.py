"""Work of a preparation: from a validated model, or from cache files, to the outcome."""
