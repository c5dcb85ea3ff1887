"""The Triton writer: a launch becomes the text of a Triton kernel."""
