"""The experiments of the field, on this machine and beside what was published."""
