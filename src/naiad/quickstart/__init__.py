"""The models of ``naiad quickstart``: a repository with the names of the field's tutorials, written without a network."""
