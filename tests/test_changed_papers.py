from changed_papers import ROOT, paper_of_file, papers_of


def test_papers_alone_leave_the_other_papers_out():
    assert papers_of(["src/lyceum/papers/hapo/credit_hapo.py", "tests/papers/test_drm_scorer_judge.py"]) == {
        "hapo",
        "drm",
    }
    assert papers_of(["docs/papers.md", "CHANGELOG.md"]) == set()


def test_anything_of_the_library_may_reach_every_paper():
    for file in ("src/lyceum/core/tree.py", "tests/conftest.py", "pyproject.toml", "src/lyceum/papers/__init__.py"):
        assert papers_of(["src/lyceum/papers/hapo/credit_hapo.py", file]) is None


def test_every_test_file_of_papers_is_some_papers():
    files = [file.stem.removeprefix("test_") for file in (ROOT / "tests/papers").glob("test_*.py")]
    assert [name for name in files if paper_of_file(name) is None] == []
