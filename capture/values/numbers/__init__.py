"""Numbers and sizes in the captured program, known or varying."""
