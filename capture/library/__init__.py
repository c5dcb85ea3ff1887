"""Rules for library functions and methods, one file per subject.

Importing this package imports all its files; they register their rules in `call_rules.FUNCTIONS`.
"""

import importlib
import pkgutil

MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(__path__, f"{__name__}.")
]
