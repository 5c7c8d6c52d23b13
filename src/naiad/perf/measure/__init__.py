"""When a level counts as measured: windows, stability, the server's own figures."""
