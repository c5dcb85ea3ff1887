"""Guard programs written by hand, for tests."""

from frameloom.capture import _capture as c


class Program:
    """A guard program for calls of a function. Its loads name nodes as the user would; all else is that of
    `guards`, the program in C."""

    def __init__(self, function):
        self.guards = c.Guards()
        self._code = function.__code__
        self._paths = []

    def __getattr__(self, name):
        return getattr(self.guards, name)

    def _load(self, parent, kind, key, path):
        self._paths.append(path)
        return self.guards.load(parent, kind, key, path)

    def arg(self, position):
        return self._load(None, "arg", position, self._code.co_varnames[position])

    def cell(self, position):
        return self._load(None, "cell", position, self._code.co_freevars[position])

    def globals(self):
        return self._load(None, "globals", None, "globals()")

    def object(self, obj):
        return self._load(None, "object", obj, getattr(obj, "__name__", type(obj).__name__))

    def child(self, parent, kind, key=None):
        _, path = c.LOADS.get(kind, ("", "{0}"))
        return self._load(parent, kind, key, path.format(self._paths[parent], key))
