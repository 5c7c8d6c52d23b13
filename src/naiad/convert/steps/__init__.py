"""The steps of a conversion, one function each. Each runs in a process of its own and takes and returns JSON's types."""
