"""First examples of agents' frameworks, as their guides have them: one tool, one question. Only the address is ours."""


async def langgraph(base_url, api_key, prompt):
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    def times(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    agent = create_react_agent(ChatOpenAI(model="policy", base_url=base_url, api_key=api_key), [times])
    result = await agent.ainvoke({"messages": [("user", prompt)]})
    return result["messages"][-1].content


def times_tool():
    from agents import function_tool

    @function_tool
    def times(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    return times


async def openai_agents(client, prompt):
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(model="policy", openai_client=client)
    agent = Agent(name="Assistant", instructions="Be brief.", tools=[times_tool()], model=model)
    return (await Runner.run(agent, prompt)).final_output


async def openai_agents_responses(client, prompt):
    from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    model = OpenAIResponsesModel(model="policy", openai_client=client)
    agent = Agent(name="Assistant", instructions="Be brief.", tools=[times_tool()], model=model)
    return (await Runner.run(agent, prompt)).final_output


async def pydantic_ai(base_url, api_key, prompt):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(OpenAIChatModel("policy", provider=OpenAIProvider(base_url=base_url, api_key=api_key)))

    @agent.tool_plain
    def times(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    return (await agent.run(prompt)).output


def smolagents_with(kind, base_url, api_key, prompt):
    import smolagents

    @smolagents.tool
    def times(a: int, b: int) -> int:
        """Multiply two numbers.

        Args:
            a: the first
            b: the second
        """
        return a * b

    model = smolagents.OpenAIModel(model_id="policy", api_base=base_url, api_key=api_key)
    return str(getattr(smolagents, kind)(tools=[times], model=model, verbosity_level=0, max_steps=4).run(prompt))


def smolagents_tools(base_url, api_key, prompt):
    return smolagents_with("ToolCallingAgent", base_url, api_key, prompt)


def smolagents_code(base_url, api_key, prompt):
    return smolagents_with("CodeAgent", base_url, api_key, prompt)
