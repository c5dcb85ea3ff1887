"""Functions and methods of the standard library's containers and iterators."""
