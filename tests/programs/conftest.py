from tests.programs.program import collect


def pytest_pycollect_makeitem(collector, name, obj):
    return collect(collector, name, obj)
