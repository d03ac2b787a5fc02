"""Tables of the C interface, and the C code that is generated from them."""
