"""The embedded engine's fast path on a CPU: decoding straight from the weights of the model families that it knows."""
