"""The response cache: answers to requests that came before."""
