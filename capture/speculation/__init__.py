"""Going on as if a condition on data held: predictions, guards at run time, and calls that are hoisted out of the graph."""
