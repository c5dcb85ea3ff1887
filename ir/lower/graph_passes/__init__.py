"""Changes of the graph that is lowered: constants computed once, batch norms folded, parts that repeat."""
