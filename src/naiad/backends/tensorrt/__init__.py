"""Plans of TensorRT: engines that were built for one kind of GPU."""
