"""The models of ``naiad quickstart``: a repository with the names of the tutorials, written without a network."""
