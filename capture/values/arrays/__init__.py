"""NumPy's arrays and numbers."""
