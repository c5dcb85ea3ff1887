"""Gradients are compiled in the tests of them."""

from dataclasses import replace

import pytest

from frameloom.capture import record


@pytest.fixture
def compiled_gradients(monkeypatch):
    monkeypatch.setattr(record, "config", replace(record.config, gradients=True))
