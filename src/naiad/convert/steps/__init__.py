"""The steps of a conversion, one function each. Each runs in a process of its own; they take and return JSON."""
