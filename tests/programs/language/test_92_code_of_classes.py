"""Code that the program gives to classes of constants (enumerations, metaclasses) and to descriptors; slots beside dictionaries; names of attributes.

PYTEST_DONT_REWRITE
"""

import enum

from tests.programs.program import X, program

LOG: list = []
SCALES = {"low": 1, "high": 2}


# The second call finds other contents.
TWO = [(X, 3), (X, 4)]


class Speed(enum.Enum):
    LOW = "low"
    HIGH = "high"

    @property
    def scale(self):
        return SCALES[self.value]

    def __eq__(self, other):
        LOG.append("eq")
        return self is other

    def __hash__(self):
        LOG.append("hash")
        return 3

    def __bool__(self):
        return SCALES[self.value] % 2 == 0

    def __lt__(self, other):
        return SCALES[self.value] > SCALES[other.value]

    def __neg__(self):
        return SCALES[self.value]


@program(calls=TWO, before=LOG.clear, state=lambda: LOG, graphs=2)
def members_compute(x, n):
    SCALES["low"] = n
    return x * Speed.LOW.scale, -Speed.LOW, Speed.LOW == Speed.HIGH, Speed.LOW < Speed.HIGH


@program(calls=TWO, breaks="opaque_object")
def members_are_true_or_not(x, n):
    SCALES["low"] = n
    return x * 2, 1 if Speed.LOW else 2


@program(calls=TWO, before=LOG.clear, state=lambda: LOG)
def members_are_looked_for(x, n):
    SCALES["low"] = n
    return x * 2, Speed.LOW in (Speed.LOW, 3), Speed.LOW in (Speed.HIGH, 3)


@program(calls=TWO, graphs=2)
def members_are_sorted(x, n):
    SCALES["low"] = n
    return x * 2, sorted([Speed.HIGH, Speed.LOW]), max(Speed.LOW, Speed.HIGH)


@program(calls=TWO, before=LOG.clear, state=lambda: LOG, breaks="identity")
def members_are_keys(x, n):
    SCALES["low"] = n
    return {Speed.LOW: x * 2, Speed.HIGH: 1}


class Meta(type):
    def __getattr__(cls, name):
        if name not in SCALES:
            raise AttributeError(name)
        return SCALES[name]

    def __len__(cls):
        return SCALES["low"]

    def __add__(cls, other):
        return other + SCALES["low"]

    def __eq__(cls, other):
        return SCALES["low"] % 2 == 0

    __hash__ = type.__hash__


class Scaled(metaclass=Meta):
    pass


@program(calls=TWO, graphs=2)
def metaclass_computes(x, n):
    SCALES["low"] = n
    return x * Scaled.low, Scaled + 1, Scaled == 3, Scaled != 3


class Indexed(type):
    def __getitem__(cls, key):
        return cls.factor + key


class BothIndexed(metaclass=Indexed):
    factor = 3

    def __class_getitem__(cls, key):
        return key


@program(calls=TWO, graphs=2)
def metaclass_is_asked_for_an_item_first(x, n):
    return x * BothIndexed[n], BothIndexed[1]


@program(calls=TWO, breaks="attribute")
def metaclass_has_a_length(x, n):
    SCALES["low"] = n
    return x * 2, len(Scaled)


class class_property(property):
    def __get__(self, owner, cls=None):
        return self.fget(cls)


class logged_property(property):
    def __set__(self, owner, value):
        LOG.append(value)

    def __delete__(self, owner):
        LOG.append("deleted")


class numbered(staticmethod):
    def __get__(self, owner, cls=None):
        return owner is None


class named(classmethod):
    def __get__(self, owner, cls=None):
        return cls.__name__


class Described:
    @class_property
    def name(cls):
        return cls.__name__

    @logged_property
    def logged(self):
        return 5

    @numbered
    def is_class():
        pass

    @named
    def called(cls):
        pass


@program(before=LOG.clear, state=lambda: LOG, breaks="attribute attribute")
def descriptors_of_subclasses(x):
    d = Described()
    found = [d.name, Described.name, d.is_class, Described.is_class, d.called, Described.called]
    d.logged = 7
    return x + 1, found


class Deletes:
    def __get__(self, owner, cls):
        return "descriptor"

    def __delete__(self, owner):
        owner.gone = True


class Data:
    d = Deletes()


@program(breaks="attribute_write")
def descriptor_that_only_deletes(x):
    data = Data()
    data.__dict__["d"] = x + 1
    seen = data.d
    try:
        data.d = 3
    except AttributeError:
        seen += " refuses"
    return x + 1, seen, vars(data)


class Slotted:
    __slots__ = ("__dict__", "s")


GIVEN = Slotted()


def renew():
    global GIVEN
    GIVEN = Slotted()


@program()
def slots_are_not_in_the_dictionary(x):
    o = Slotted()
    o.s, o.k = x + 1, 2
    return sorted(vars(o)), "s" in o.__dict__, len(o.__dict__), list(o.__dict__.items()), o.s


@program(before=renew, state=lambda: [GIVEN.s, vars(GIVEN)])
def slots_of_a_given_object(x):
    GIVEN.s, GIVEN.k = x + 1, 2
    return sorted(vars(GIVEN)), dict(GIVEN.__dict__)


@program(breaks="attribute_write")
def dictionary_with_the_name_of_a_slot(x):
    o = Slotted()
    o.s = x + 1
    o.__dict__["s"] = 3
    return o.s, vars(o)


class Letter(str, enum.Enum):
    SHAPE = "shape"


class Answers:
    def __getattr__(self, name):
        return type(name).__name__, name


def said(call):
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return repr(error)


@program(breaks="exception exception exception")
def names_that_are_no_strings(x):
    return x + 1, said(lambda: getattr(x, 3)), said(lambda: hasattr(x, None)), said(lambda: setattr(Answers(), b"a", 1))  # fmt: skip


@program(breaks="attribute")
def name_of_a_subclass_of_str(x):
    return x + 1, getattr(x, Letter.SHAPE), getattr(Answers(), Letter.SHAPE)


class Removes:
    def __delattr__(self, name):
        self.removed = name
        object.__delattr__(self, name)


@program()
def object_delattr_in_a_hook(x):
    o = Removes()
    o.x = x
    del o.x
    return x + 1, vars(o)


@program()
def vars_of_what_has_none(x):
    return x + 1, said(lambda: vars(5)), said(lambda: vars([])), said(lambda: vars(None))


@program(breaks="exception exception exception")
def stars_before_what_cannot_be_spread(x):
    f = lambda *args, **kwargs: (args, kwargs)  # noqa: E731
    return x + 1, said(lambda: f(*5)), said(lambda: f(**5)), said(lambda: {**5})  # type: ignore[dict-item,arg-type]
