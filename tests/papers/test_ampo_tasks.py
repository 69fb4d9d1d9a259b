import random

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.ampo.tasks_chain_teachers import ChainTeachers, taught
from lyceum.tasks.chain import Chain, grade, make_task, standing_steps


def test_every_teacher_is_right_in_its_own_way():
    class Second(random.Random):
        def randrange(self, *args):
            return 1

    # 37+8=45, 45-2=43, 43+5=48; the second step slips: 53, from which 58 follows.
    written = taught(Second(0), 37, [8, -2, 5])
    assert written == {
        "steps": "37+8=45-2=43+5=48#48",
        "corrector": "37+8=45-2=53!43+5=48#48",
        "backtracker": "37+8=45-2=53+5=58?2:43+5=48#48",
        "restarter": "37+8=45-2=53?0:37+8=45-2=43+5=48#48",
    }


def test_all_are_graded_correct_and_so_are_the_steps_that_stand():
    source = ChainTeachers().build("train", 3)
    for index in range(40):
        task = source[index]
        for one in task.columns["demonstrations"]:
            leaf = Node.prompt([0]).add([1], Origin.TEACHER, one["text"])
            assert grade(task, leaf).correct
            assert all(right for _, right in standing_steps(task, one["text"]))


def test_the_tasks_are_those_of_the_plain_chains():
    plain, taught_source = Chain().build("heldout", 0), ChainTeachers().build("heldout", 0)
    assert [taught_source[i].messages for i in range(20)] == [plain[i].messages for i in range(20)]
    assert (
        taught_source[5].columns["demonstrations"] == ChainTeachers().build("heldout", 0)[5].columns["demonstrations"]
    )


def test_one_operation_has_all_four_too():
    assert len(taught(random.Random(0), 37, make_task("t", 37, [8]).columns["operations"])) == 4
