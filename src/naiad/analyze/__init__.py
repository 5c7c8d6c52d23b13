"""``naiad analyze``: searches the configurations of models for the best ones, and reports why they are."""
