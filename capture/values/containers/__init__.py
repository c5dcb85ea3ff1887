"""Lists, tuples, deques, dictionaries, sets and their iterators in the captured program."""
