"""Generated code of the contract, proto/nnhal/v1; made by `make proto`."""
