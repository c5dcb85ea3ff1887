"""Memory layouts that differ from the program's own: channels-last, oneDNN's, and copies between layouts."""
