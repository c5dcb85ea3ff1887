"""Imports all files of this package, so that their rules are registered. The package itself does not: it has
functions for programs, such as `cond`, which run where nothing can be captured."""

import importlib
import pkgutil

from frameloom.capture import library

MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(library.__path__, f"{library.__name__}.")
    if module.name != __name__
]
