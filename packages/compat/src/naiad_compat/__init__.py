"""The field's commands as names for those of Naiad."""
