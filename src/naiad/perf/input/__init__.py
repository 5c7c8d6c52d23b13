"""What requests hold: tensors that are made up, or read from directories and JSON files."""
