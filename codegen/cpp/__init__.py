"""The C++ writer: a loop tree becomes the text of a vectorized function."""
