"""Services over HTTP whose protocol is not KServe v2."""
