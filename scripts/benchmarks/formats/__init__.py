"""The formats of models that the case ``formats`` compares: how each is written, called directly and configured."""
