"""The native parts seen from Python: loads them and emits their ops into graphs."""
