"""The rules that a model configuration must keep, one file per section; each rule yields every violation it finds.

Source: configuration reference, section "Validation errors". Messages given there are kept word for word.
"""
