"""The models that the case ``convert`` converts."""
