"""Constraints against llguidance over the whole vocabularies of real models (GRAM-08).

A few random texts of every case; tools/compare_constraints.py walks many.
"""

import pytest
from compare_constraints import compare
from constraint_oracle import REFUSED_THERE, load_cases
from vocabularies import REAL

WALKS = 3


@pytest.mark.parametrize("name", REAL)
def test_allowed_tokens_agree_and_JSON_fits_its_schema(name: str) -> None:
    result = compare(name, WALKS)
    assert result.differences == []
    assert sorted(result.refused) == sorted(REFUSED_THERE)
    assert sum(result.compared.values()) == len(load_cases()) - len(REFUSED_THERE)
    assert result.texts > 150
