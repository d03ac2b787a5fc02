"""Whether models, requests and arguments are valid: every rule of model-validation.md, by its id."""
