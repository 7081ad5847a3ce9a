"""The native parts seen from Python: loading them, emitting their ops into graphs, and what graphs need besides."""
