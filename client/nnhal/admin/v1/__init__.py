"""Generated code of the administration, proto/nnhal/admin/v1; made by `make proto`."""
