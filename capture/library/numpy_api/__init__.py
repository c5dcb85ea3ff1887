"""NumPy's functions and methods of arrays, computed by PyTorch. NumPy itself says what each result is."""
