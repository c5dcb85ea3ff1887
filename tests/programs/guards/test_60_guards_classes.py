"""What a class has and lacks is noticed: methods, properties, special methods, metaclasses, bases.

PYTEST_DONT_REWRITE
"""

import abc
import collections.abc

from tests.programs.changing import SAME, changes


@changes
def attribute_of_a_class_read_by_an_instance():
    class A:
        k = 2.0

    a = A()
    yield lambda x: x * a.k
    A.k = 3.0
    yield
    A.other = 1
    yield SAME
    a.k = 4.0
    yield
    del a.k
    yield
    a.other = 5
    yield SAME


@changes
def attribute_that_was_missing():
    class A:
        pass

    a = A()
    yield lambda x: x * getattr(a, "k", 3.0) + hasattr(a, "k")
    A.__getattr__ = lambda self, name: 5.0
    yield
    A.k = 6.0
    yield
    a.k = 7.0
    yield


@changes
def property_replaced():
    class A:
        @property
        def k(self):
            return 2.0

    a = A()
    yield lambda x: x * a.k
    A.k = property(lambda self: 5.0)
    yield
    A.k = 7.0
    yield


@changes
def property_goes_before_an_instance_attribute():
    class A:
        def __init__(self):
            self.k = 2.0

    a = A()
    yield lambda x: x * a.k
    A.k = property(lambda self: 9.0)
    yield


@changes
def static_and_class_methods():
    class A:
        @staticmethod
        def s():
            return 2.0

        @classmethod
        def c(cls):
            return 3.0

    a = A()
    yield lambda x: x * a.s() * A.s() + a.c() - A.c() * 2
    A.s = staticmethod(lambda: 5.0)
    yield
    A.c = classmethod(lambda cls: 7.0)
    yield


@changes
def getattribute_defined_later():
    class A:
        def __init__(self):
            self.k = 2.0

    a = A()
    yield lambda x: x * a.k
    A.__getattribute__ = lambda self, name: 4.0
    yield


@changes
def truth_defined_later():
    class A:
        pass

    class B:
        pass

    a, b = A(), B()
    yield lambda x: x + (1 if a else 2) + (10 if b else 20)
    A.__bool__ = lambda self: False
    yield
    B.__len__ = lambda self: 0
    yield


@changes
def special_methods_defined_later():
    class A:
        pass

    a, b = A(), A()
    table = {a: 2.0}

    def program(x):
        return x * table.get(a, 3.0) + (a == b) + callable(a)

    yield program
    A.__call__ = lambda self: 1
    yield
    A.__eq__ = lambda self, other: True
    yield
    A.__hash__ = lambda self: 1
    yield


@changes
def operator_defined_later():
    class A:
        pass

    a = A()
    yield lambda x: a + x if hasattr(a, "__add__") else x - 1
    A.__add__ = lambda self, other: other * 5
    yield


@changes
def iteration_and_context_manager():
    class A:
        def __iter__(self):
            return iter([1.0, 2.0])

        def __enter__(self):
            return 2.0

        def __exit__(self, *exception):
            return False

    a = A()

    def program(x):
        for k in a:
            x = x * k
        with a as k:
            return x + k

    yield program
    A.__iter__ = lambda self: iter([3.0])
    yield
    A.__enter__ = lambda self: 7.0
    yield


@changes
def construction():
    class A:
        k = 3.0

    def new(cls):
        made = object.__new__(cls)
        made.k = 8.0
        return made

    yield lambda x: x * A().k
    A.__new__ = staticmethod(new)
    yield
    A.__init__ = lambda self: setattr(self, "k", 6.0)
    yield
    A.__init__ = lambda self: setattr(self, "k", 7.0)
    yield


@changes
def writing_an_attribute():
    class A:
        k = 3.0

    a = A()

    def program(x):
        a.k = 4.0
        return x * a.k

    yield program
    A.__setattr__ = lambda self, name, value: None
    del a.k
    yield


@changes
def override_in_a_subclass_and_other_bases():
    class A:
        def f(self, x):
            return x + 1

    class C:
        def f(self, x):
            return x + 10

    class B(A):
        pass

    b = B()
    yield lambda x: b.f(x)
    B.f = lambda self, x: x + 2
    yield
    del B.f
    yield
    B.__bases__ = (C,)
    yield
    C.g = 1
    yield SAME


@changes
def super_sees_what_is_put_between():
    class A:
        def f(self, x):
            return x + 20

    class B(A):
        pass

    class C(B):
        def f(self, x):
            return super().f(x) * 2

    c = C()
    yield lambda x: c.f(x)
    A.f = lambda self, x: x + 30
    yield
    B.f = lambda self, x: x + 40
    yield
    B.g = 1
    yield SAME


@changes
def class_of_an_instance():
    class A:
        k = 1.0

    class B:
        k = 5.0

    a = A()
    yield lambda x: x * a.k * type(a).k
    a.__class__ = B
    yield
    B.k = 6.0
    yield


@changes
def metaclass():
    class Meta(type):
        pass

    class A(metaclass=Meta):
        pass

    yield lambda x: x * getattr(A, "k", 1.0)
    Meta.k = 3.0
    yield
    A.k = 4.0
    yield
    Meta.k = property(lambda cls: 5.0)
    yield


@changes
def registered_with_an_abstract_class():
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class A:
        pass

    a = A()
    yield lambda x: x + 1 if isinstance(a, Abstract) else x - (2 if issubclass(A, Abstract) else 1)
    collections.abc.Sized.register(type("Unrelated", (), {}))
    yield SAME
    Abstract.register(A)
    yield


@changes
def slot():
    class A:
        __slots__ = ("k",)

    a = A()
    a.k = 2.0
    yield lambda x: x * a.k
    a.k = 3.0
    yield
    A.k = property(lambda self: 6.0)
    yield


@changes
def class_attributes_that_do_not_matter():
    class A:
        calls = 0

        def f(self, x):
            return x + 1

    a = A()
    yield lambda x: a.f(x)
    for _ in range(40):
        A.calls += 1
        yield SAME


@changes
def names_and_bases():
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    c = C()

    def program(x):
        x = x * len(type(c).__name__) + len(C.__bases__) * 10
        return x + 1 if isinstance(c, B) else x - (2 if issubclass(C, A) else 3)

    yield program
    C.__name__ = "Longer"
    yield
    C.__bases__ = (A, B)
    yield
    C.__bases__ = (B,)
    yield
    C.note = 1
    yield SAME


@changes
def subscript_of_a_class():
    k = 2.0

    class A:
        def __class_getitem__(cls, key):
            return k * key

    yield lambda x: x * A[3]
    k = 4.0
    yield


@changes
def descriptors_written_in_python():
    k = 2.0

    class Descriptor:
        def __get__(self, instance, owner):
            return k

    class Meta(type):
        @property
        def m(cls):
            return k

    class A(metaclass=Meta):
        d = Descriptor()

    a = A()
    yield lambda x: x * a.d + A.d - A.m * 3
    k = 5.0
    yield
    Descriptor.__get__ = lambda self, instance, owner: 7.0
    yield


@changes
def properties_asked_of_the_class():
    class A:
        @property
        def p(self):
            return 1

    class B(A):
        pass

    yield lambda x: x + (1 if isinstance(getattr(B, "p"), property) else 2)
    yield SAME
    B.p = 3
    yield
