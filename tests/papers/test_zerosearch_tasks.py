from lyceum.papers.zerosearch.tasks_chain_documents import ChainDocuments
from lyceum.tasks.chain import is_heldout


def test_a_question_mark_asks_for_the_result_and_an_exclamation_mark_for_another_number():
    tasks = [ChainDocuments(noisy=0.3).build("train", 0)[i] for i in range(400)]
    noisy = 0
    for task in tasks:
        prompt, written = task.messages[-1]["content"], int(task.columns["demonstration"])
        assert not is_heldout(prompt[1:])
        right = eval_of(prompt[1:-1])
        assert (written == right) == (prompt[0] == "?")
        assert 0 <= written < 100
        noisy += prompt[0] == "!"
    assert 80 < noisy < 160


def eval_of(operation: str) -> int:
    """The result of ``37+8`` modulo 100."""
    sign = max(operation.rfind("+"), operation.rfind("-"))
    return (int(operation[:sign]) + int(operation[sign:])) % 100
