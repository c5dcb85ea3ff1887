"""Passes over a Program of the loop IR: each takes one and returns one that computes the same."""
