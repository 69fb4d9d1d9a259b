"""Trees rebuilt from trajectories, small enough to draw by hand."""

import json

from lyceum.training.view.token_tree import token_tree


def _row(tokens, nodes=None, prompt="Q"):
    completion = "".join(tokens)
    return {
        "prompt": prompt,
        "completion": completion,
        "node_texts": [prompt, *(nodes or [completion])],
        "token_texts": tokens,
    }


def _drawn(runs):
    """Each run with the text of the run above it."""
    return [(runs[run["parent"]]["text"] if run["parent"] >= 0 else None, run["text"]) for run in runs]


def test_a_flat_group_is_merged_by_its_common_tokens():
    # Siblings below the prompt share "1 + 1 =", then part.
    tree = token_tree([_row(["1 +", " 1 =", " 2"]), _row(["1 +", " 1 =", " 3"]), _row(["1 +", " 1 =", " 2"])])
    assert _drawn(tree) == [(None, "Q"), ("Q", "1 + 1 ="), ("1 + 1 =", " 2"), ("1 + 1 =", " 3")]
    assert [run["rows"] for run in tree] == [[0, 1, 2], [0, 1, 2], [0, 2], [1]]
    assert [run["ends"] for run in tree] == [[], [], [0, 2], [1]]


def test_tokens_are_merged_and_not_letters():
    # "12" and "13" are two tokens that begin with the same letter: they part before it.
    tree = token_tree([_row(["12"]), _row(["13"])])
    assert _drawn(tree) == [(None, "Q"), ("Q", "12"), ("Q", "13")]


def test_a_node_of_the_runs_own_tree_stays_visible_without_a_branch():
    # A tool's answer inside one trajectory begins a node: the run is cut there although nothing parts.
    tree = token_tree([_row(["call", "(1)", "-> 2", " so 2"], nodes=["call(1)", "-> 2", " so 2"])])
    assert _drawn(tree) == [(None, "Q"), ("Q", "call(1)"), ("call(1)", "-> 2"), ("-> 2", " so 2")]


def test_a_trajectory_that_ends_where_another_goes_on_keeps_its_end():
    tree = token_tree([_row(["a"]), _row(["a", "b"])])
    assert _drawn(tree) == [(None, "Q"), ("Q", "a"), ("a", "b")]
    assert [run["ends"] for run in tree] == [[], [0], [1]]


def test_two_prompts_of_one_task_stand_beside_each_other():
    tree = token_tree([_row(["a"], prompt="Q"), _row(["a"], prompt="Q with a hint")])
    assert _drawn(tree) == [(None, "Q"), ("Q", "a"), (None, "Q with a hint"), ("Q with a hint", "a")]


def test_tokens_that_do_not_spell_the_text_fall_back_to_nodes():
    # half of a character each: decoded alone they are replacement marks
    row = _row(["\ufffd", "\ufffd"], nodes=["é"])
    assert _drawn(token_tree([row])) == [(None, "Q"), ("Q", "é")]


def test_a_spelled_out_end_of_sequence_does_not_stop_the_merging():
    rows = [{**_row(["a", last]), "token_texts": ["a", last, "<eos>"]} for last in "bc"]
    assert _drawn(token_tree(rows)) == [(None, "Q"), ("Q", "a"), ("a", "b<eos>"), ("a", "c<eos>")]


def test_a_long_search_is_not_limited_by_the_call_stack():
    deep = [str(i % 10) for i in range(5000)]
    tree = token_tree([_row(deep, nodes=deep)], most=5000)
    assert len(tree) == 5001
    assert [run["parent"] for run in tree] == list(range(-1, 5000))
    assert json.loads(json.dumps(tree)) == tree


def test_what_a_search_kept_stands_on_the_run_that_begins_its_node():
    # Two siblings begin with the same token: both are on its run, a node that both trajectories pass is there once.
    def row(nodes, *texts):
        stats = [json.dumps({"visits": n} if n else {}) for n in nodes]
        return _row(list(texts), nodes=list(texts)) | {"nodes": nodes, "node_stats": stats}

    tree = token_tree([row([0, 1, 2], "a", "b"), row([0, 1, 3], "a", "b"), row([0, 4, 5], "a", "c")])
    assert _drawn(tree) == [(None, "Q"), ("Q", "a"), ("a", "b"), ("a", "c")]
    assert [run.get("stats") for run in tree] == [
        None, [{"visits": 1}, {"visits": 4}], [{"visits": 2}, {"visits": 3}], [{"visits": 5}],
    ]  # fmt: skip
