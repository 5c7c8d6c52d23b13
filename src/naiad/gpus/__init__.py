"""The NVIDIA GPUs of this machine: which there are, which models may use, and their figures."""
