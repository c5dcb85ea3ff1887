"""Leaves a captured frame and resumes behind it: resume functions, new bytecode, and replayed effects."""
