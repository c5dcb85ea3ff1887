"""Changes to a graph before or during lowering: constant folding, batch norm folding, repeated parts."""
