"""The embedded engine's fast path on a CPU: decoding directly from the weights of known model families."""
