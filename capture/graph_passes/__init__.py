"""Changes of a captured graph before it is lowered: attention that a program writes out, frozen weights,
casts of weights."""
