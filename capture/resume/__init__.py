"""Leaving a captured frame and going on behind it: resume functions, new bytecode, and effects that are replayed."""
