"""Every recipe as shipped, only briefer: its mechanism acts, without it the run differs, and killed it goes on alike.

What a recipe has to show is its line in ``proofs.py``, or in its paper's folder; ``analysis/proving.py`` runs it.
"""

from itertools import islice
from pathlib import Path

import pytest
from proofs import LINES, PROOFS

from lyceum.analysis.proving import keeps_state, not_differing, other_end, train_before, trained, unproven, whole
from lyceum.core.paper_folders import shipped
from lyceum.recipe.files import recipe_names


def needed(name: str):
    """The recipe's proof, where what it needs is there."""
    assert name in PROOFS, f"{name}: tests/recipe/proofs.py has no line that says what shows that its mechanism acted"
    proof = PROOFS[name]
    if proof.needs is not None and not Path(proof.needs).exists():
        pytest.skip(f"there is no {proof.needs}")
    return proof


@pytest.mark.parametrize("name", recipe_names())
def test_its_mechanism_acts_and_killed_it_ends_in_the_same_bits(name, tmp_path):
    assert unproven(name, needed(name), tmp_path, every=name == "grpo") == []


@pytest.mark.engines
@pytest.mark.parametrize("name", recipe_names())
def test_killed_it_ends_in_the_same_bits_with_no_state_of_its_own_too(name, tmp_path):
    proof = needed(name)
    train_before(name, proof, tmp_path)
    run, left = whole(name, proof, tmp_path)
    if not keeps_state(left):
        assert other_end(name, proof, run, left) == []


@pytest.mark.engines
@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if len(proof.off) > 1])
def test_it_differs_without_each_other_part_of_its_mechanism(name, tmp_path):
    proof = needed(name)
    train_before(name, proof, tmp_path)
    run = trained(name, proof, tmp_path / "whole")
    for number, (off, part) in enumerate(islice(proof.off.items(), 1, None)):
        assert not_differing(name, proof, run, tmp_path / str(number), off, part) == []


def test_every_line_is_of_a_recipe_that_no_papers_folder_has():
    assert LINES.keys() <= set(recipe_names()) - {name for folder in shipped() for name in folder.recipes}
