"""The process that copies the models at a URL: its start by the supervisor, and its main function."""
