"""How tensors lie in memory beside the program's own layout: channels-last, oneDNN's, and copies from one to another."""
