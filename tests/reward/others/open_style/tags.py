def contents(completions):
    return [completion[0]["content"] for completion in completions]
