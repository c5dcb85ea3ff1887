"""Numbers and sizes in the captured program, constant or dynamic."""
