"""User classes: construction, properties, descriptors, attribute hooks, class and static methods, inheritance.

PYTEST_DONT_REWRITE
"""

import abc

import torch

from tests.programs.program import X, program


class Layer:
    count = 0

    def __init__(self, scale, *, shift=0.0):
        self.scale = scale
        self.shift = shift

    def __call__(self, x):
        return x * self.scale + self.shift


class Plain:
    made = "class attribute"

    def __init__(self, value=None):
        self.value = value


@program()
def object_made_and_used(x):
    p = Plain(x)
    p.extra = [1]
    p.value = p.value * 2
    return p.value + 1, p, p.made


@program()
def class_attribute_shadowed(x):
    p, q = Plain(1), Plain(2)
    p.made = "own"
    return x + p.value, p.made, q.made, Plain.made, p, q


@program(
    graphs=2,
    breaks="attribute_write",
    before=lambda: setattr(Layer, "count", 0),
    state=lambda: Layer.count,
)
def class_attribute_written(x):
    y = x + Layer.count
    Layer.count += 1
    return y * Layer.count


class Temperature:
    def __init__(self, celsius):
        self._celsius = celsius

    @property
    def celsius(self):
        return self._celsius

    @celsius.setter
    def celsius(self, value):
        if value < -273:
            raise ValueError("too cold")
        self._celsius = value

    @celsius.deleter
    def celsius(self):
        self._celsius = None

    @property
    def fahrenheit(self):
        return self._celsius * 9 / 5 + 32


@program()
def properties(x):
    t = Temperature(10)
    t.celsius += 5
    f = t.fahrenheit
    try:
        t.celsius = -500
    except ValueError as error:
        message = str(error)
    try:
        t.fahrenheit = 3
    except AttributeError:
        message += " fixed"
    del t.celsius
    return x + f, t, message


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, objtype=None):
        return self if obj is None else getattr(obj, self.name, 0)

    def __set__(self, obj, value):
        if value <= 0:
            raise ValueError(f"{self.name} must be positive")
        setattr(obj, self.name, value)


class Account:
    balance = Positive()

    def __init__(self, balance):
        self.balance = balance


@program()
def data_descriptor(x):
    a = Account(5)
    a.balance = a.balance + 1
    try:
        a.balance = -1
    except ValueError as error:
        message = str(error)
    return x + a.balance, a, message


class Lazy:
    def __init__(self, fn):
        self.fn = fn
        self.name = fn.__name__

    def __get__(self, obj, objtype=None):
        value = self.fn(obj)
        obj.__dict__[self.name] = value
        return value


class Data:
    def __init__(self, x):
        self.x = x
        self.calls = 0

    @Lazy
    def total(self):
        self.calls += 1
        return self.x.sum()


@program()
def non_data_descriptor(x):
    d = Data(x)
    return d.total + d.total, d.calls, d


class Proxy:
    def __init__(self, target):
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "log", [])

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(name)
        return getattr(self.target, name)

    def __setattr__(self, name, value):
        self.log.append(f"set {name}")
        setattr(self.target, name, value)

    def __delattr__(self, name):
        self.log.append(f"del {name}")
        delattr(self.target, name)


@program()
def attribute_hooks(x):
    p = Proxy(Plain(x))
    y = p.value + 1
    p.value = y
    p.other = 1
    del p.other
    return y, p.log, p.target, hasattr(p, "nothing")


class Counting:
    def __init__(self):
        self.reads = 0
        self.data = 5

    def __getattribute__(self, name):
        if name == "data":
            object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
        return super().__getattribute__(name)


@program()
def getattribute_hook(x):
    c = Counting()
    return x + c.data + c.data, c.reads


@program()
def callable_object(x):
    layer = Layer(2.0, shift=1)
    return layer(x), [f(x) for f in (layer, Layer(3))]


class Shape:
    registry = {}

    def __init_subclass__(cls, kind=None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kind = kind
        Shape.registry[kind] = cls

    @classmethod
    def make(cls, kind, *args):
        return cls.registry[kind](*args)

    @staticmethod
    def scale(n):
        return n * 10

    def area(self):
        raise NotImplementedError


class Square(Shape, kind="square"):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


class Cube(Square, kind="cube"):
    def __init__(self, side):
        super().__init__(side)
        self.height = side

    def area(self):
        return super().area() * 6


@program()
def class_and_static_methods(x):
    s = Shape.make("square", x)
    c = Cube.make("cube", 2)
    return (
        s.area(),
        c.area(),
        Shape.scale(2),
        c.scale(3),
        type(c).kind,
        isinstance(c, Square),
        Cube.mro()[1] is Square,
    )


@program()
def not_implemented_is_caught(x):
    try:
        Shape().area()
    except NotImplementedError as error:
        return x + 1, str(error)


class Loud:
    def speak(self):
        return super().speak() + "!"


class Twice:
    def speak(self):
        return super().speak() * 2


class Base:
    def speak(self):
        return "hi"


class Both(Loud, Twice, Base):
    pass


@program()
def mixins_by_resolution_order(x):
    return x + len(Both().speak()), Both().speak(), [c.__name__ for c in Both.__mro__]


class Point:
    __slots__ = ("x", "y")

    def __init__(self, x, y=0):
        self.x = x
        self.y = y


class Named(Point):
    __slots__ = ("name",)


@program()
def slots(x):
    p, n = Point(x, 2), Named(1)
    n.name = "n"
    p.y += 1
    del n.y
    try:
        p.z = 1
    except AttributeError:
        caught = "no z"
    return p.x * p.y, p, n, caught, hasattr(n, "y")


class Abstract(abc.ABC):
    @abc.abstractmethod
    def run(self, x): ...

    @property
    @abc.abstractmethod
    def name(self): ...


class Concrete(Abstract):
    name = "concrete"

    def run(self, x):
        return x * 2


@program()
def abstract_classes(x):
    try:
        Abstract()
    except TypeError:
        caught = True
    return Concrete().run(x), Concrete().name, caught, isinstance(Concrete(), Abstract)


class Single:
    instance = None

    def __new__(cls, *args):
        self = super().__new__(cls)
        self.made = True
        return self

    def __init__(self, n):
        self.n = n


@program()
def own_new(x):
    s = Single(3)
    return x + s.n, s.made, s


class Meta(type):
    def __call__(cls, *args, **kwargs):
        instance = super().__call__(*args, **kwargs)
        instance.tag = cls.__name__
        return instance

    @property
    def label(cls):
        return "label of " + cls.__name__


class WithMeta(metaclass=Meta):
    def __init__(self, n):
        self.n = n


@program()
def metaclass(x):
    w = WithMeta(2)
    return x * w.n, w.tag, WithMeta.label, type(WithMeta)


@program(graphs=3, breaks="class_statement")
def class_statement_in_the_frame(x):
    y = x + 1

    class Local:
        factor = 3

        def apply(self, t):
            return t * self.factor

    return Local().apply(y)


@program(args=lambda: (X, Plain([1])))
def object_argument_changes(x, p):
    p.value.append(2)
    p.fresh = x + 1
    p.made = "changed"
    return x * len(p.value)


@program(args=lambda: (X, *([Plain(1)] * 2)))
def one_object_under_two_names(x, a, b):
    a.value = 7
    return x + b.value, a is b


@program()
def objects_in_a_cycle(x):
    a, b = Plain(x), Plain()
    a.other, b.other = b, a
    return a.other.other.value + 1, a


@program()
def bound_methods_kept(x):
    t = Temperature(1)
    layer = Layer(2)
    calls = [layer.__call__, Layer(3).__call__]
    m = Square(2).area
    return [f(x) for f in calls], m(), m.__self__.side, m.__func__ is Square.area, t


@program()
def methods_through_the_class(x):
    s = Square(3)
    return (
        x + Square.area(s),
        Layer.__call__(Layer(2), x),
        object.__repr__(1)[:9],
        Plain.__init__(s, 5),
        s,
    )


class Tree:
    def __init__(self, value, *children):
        self.value = value
        self.children = children

    def total(self):
        return self.value + sum(child.total() for child in self.children)

    def __iter__(self):
        yield self.value
        for child in self.children:
            yield from child


@program()
def recursion_over_objects(x):
    t = Tree(x, Tree(1, Tree(2)), Tree(3))
    return t.total(), len(list(t)), list(t)[1:]


class Builder:
    def __init__(self):
        self.steps = []

    def add(self, fn):
        self.steps.append(fn)
        return self

    def run(self, x):
        for fn in self.steps:
            x = fn(x)
        return x


@program()
def method_chaining(x):
    return Builder().add(torch.relu).add(lambda t: t + 1).add(torch.Tensor.exp).run(x)


def test_class_dictionary_is_read():
    assert Shape.registry["square"] is Square
