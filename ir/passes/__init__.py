"""Passes over a Program of the loop IR: each takes a program and returns one that computes the same."""
