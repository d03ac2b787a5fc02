"""The demo of nnhal: a small digit classifier, its training and the digits that it is shown on."""
