import torch

from lyceum.papers.aepo.credit_aepo import EntropyAware


def test_uncertain_tokens_count_more_whether_the_row_is_correct_or_not(forest_of):
    # Entropies 1 and 3 in both rows: mean 2, standard deviation 1. Factors 0.8 and 1.2 with a weight of 0.2.
    forest = forest_of([(1.0, 2), (0.0, 2)])
    of = {100: 1.0, 101: 3.0, 200: 3.0, 201: 1.0}
    forest = forest.with_columns(old_entropy=torch.tensor([of.get(token, 9.0) for token in forest.token.tolist()]))
    found = EntropyAware(scale="none").build()(forest)
    torch.testing.assert_close(found.advantage, torch.tensor([[0, 0.4, 0.6], [0, -0.6, -0.4]]))
    assert found.metrics["tokens_raised"] == 2
    without = EntropyAware(scale="none", entropy_weight=0).build()(forest)
    torch.testing.assert_close(without.advantage, torch.tensor([[0, 0.5, 0.5], [0, -0.5, -0.5]]))
