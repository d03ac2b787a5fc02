"""What the checks of compilation caching share: models, cache files, and one trial of saving and retrieving."""
