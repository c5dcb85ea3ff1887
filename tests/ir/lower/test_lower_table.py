"""The table of lowerings as a whole."""

from pathlib import Path

import frameloom.ir.lower
from tests import fresh

FOLDER = Path(frameloom.ir.lower.__file__).parent


def test_every_file_with_lowerings_is_imported():
    files = [p for p in FOLDER.rglob("*.py") if "\n@lowering(" in p.read_text()]
    names = {".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in files}
    assert "ops.random" in names
    code = "import sys, frameloom.ir.lower; print(*(m for m in sys.modules))"
    loaded = fresh.run(code, check=True)
    assert {f"frameloom.ir.lower.{n}" for n in names} <= set(loaded.stdout.split())
