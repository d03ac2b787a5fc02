"""Models by name: the files in the folder of an operator, prepared when clients use them."""
