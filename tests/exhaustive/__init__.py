"""Rewrite rules, index algebra and the algebra of sizes at all small sizes: `python -m tests.exhaustive`; see docs/testing.md."""
