"""Self-play on Kuhn poker: does the policy approach the game's known value, and does what it learns carry over?

    python benchmarks/self_play.py --out benchmarks/results/self_play.json [--seeds 5] [--quick]

A strategy is read off each model that a run keeps: how often it passes, bets or states no move at each of the game's
twelve positions. From that, exactly: what it earns against itself as the first player (in equilibrium -1/18 chips), and
its exploitability, what the best answers to it earn as the two players, on average (0 in equilibrium). Each arm is
trained at the same three rates on the first seed; the least exploitable at its end is its rate on the others. Runs are
rows of ``--out``: what is there is not trained again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations, product
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, arguments, machine, processes, say, table, write
from suites import acted, run_one

HERE = CACHE / "self_play"
VALUE = -1 / 18
RATES = ("3.0e-5", "1.0e-4", "3.0e-4")
FORFEIT, DRAWS, EVERY = 2.0, 1000, 15
"""What a text without a move loses, as in the recipe; completions per position; steps between kept models."""
ARMS: dict[str, tuple[str, ...]] = {
    "spiral": (),
    "spiral-no-roles": ("stages.online.credit={kind: reinforce}",),
    "spiral-by-position": ("stages.online.credit={kind: group}",),
}
"""Beside the recipe: advantages without a baseline by role, and against the moves at the same position of a deal."""
DEFINITIONS = {
    "exploitability": "mean of what the best answer earns against each of the model's two roles, in chips a deal; a "
    "uniform player's is in 'uniform'",
    "arms": "each at the rate that was least exploitable on the first seed, which is in the means: a little flattered, "
    "in every arm alike",
    "value": "what the model earns as the first player against itself, in chips a deal; equilibrium: -1/18",
    "illegal": "share of moves that state none, over positions alike",
    "curve": "the same after each so many steps of self-play; 0: after the fine-tuning on random moves",
    "chain": "pass@1 on the base's own tasks, chains: of the base, after fine-tuning on the game, after self-play",
}
Strategy = Mapping[tuple[int, str], tuple[float, float, float]]
"""(card, moves so far) -> how likely it passes, bets, states no move."""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    args.draws = 50 if args.quick else DRAWS
    rates, seeds = (RATES[:1], 1) if args.quick else (RATES, args.seeds)
    result: dict[str, Any] = {
        "benchmark": "self_play",
        "definitions": DEFINITIONS,
        "uniform": measured(dict.fromkeys(positions(), (0.5, 0.5, 0.0))),
        "rows": [],
    }
    if args.out and args.out.is_file():
        result["rows"] = json.loads(args.out.read_text())["rows"]
    result["machine"] = machine()
    for seed in range(seeds):
        for arm in ARMS:
            for rate in rates if seed == 0 else [best_rate(result["rows"], arm)]:
                if any((row["arm"], row["rate"], row["seed"]) == (arm, rate, seed) for row in result["rows"]):
                    continue
                row = run(arm, rate, seed, args)
                result["rows"].append(row)
                say(f"{arm} at {rate}, seed {seed}: exploitability {row['curve'][-1]['exploitability']:.3f}")
                result["arms"] = summary(result["rows"])
                write(result, args.out)
    show(summary(result["rows"]), result["uniform"])


def best_rate(rows: Sequence[Mapping[str, Any]], arm: str) -> str:
    """The least exploitable one, of the first seed."""
    of = [row for row in rows if row["arm"] == arm and row["seed"] == 0]
    return min(of, key=lambda row: row["curve"][-1]["exploitability"])["rate"]


def run(arm: str, rate: str, seed: int, args: Any) -> dict[str, Any]:
    """One run, and its row."""
    from lyceum.recipe.schema import load_recipe
    from lyceum.run.reader import read_run_folder

    name = f"{arm}-{rate}-{seed}{'-quick' if args.quick else ''}"
    steps = 2 if args.quick else 60
    keys = [
        *(f"name={name}", f"output={HERE}", f"seed={seed}", "evaluate.n=0", "checkpoint_every=0", "track=[]"),
        *(
            f"stages.online.learner.lr={rate}",
            f"stages.online.steps={steps}",
            f"keep={{every: {1 if args.quick else EVERY}}}",
        ),
        *("rollouts_every=1000", *ARMS[arm]),
    ]
    recipe = load_recipe("spiral", keys)
    with ProcessPoolExecutor(1, mp_context=processes(args)) as pool:
        seconds = pool.submit(run_one, json.dumps(recipe.resolved()), args.threads).result()
        kept = models_of(HERE / name, recipe)
        curve = [{"step": step, **of} for step, of in pool.submit(curves, kept, seed, args.draws).result()]
        of_chain = {"base": "base", "tuned": str(kept[0][1]), "played": str(kept[-1][1])}
        chain = {what: pool.submit(chain_accuracy, model, args.quick).result() for what, model in of_chain.items()}
    metrics = read_run_folder(HERE / name).metrics
    shutil.rmtree(HERE / name)
    return {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "curve": curve,
        "chain": chain,
        "seconds": round(seconds, 1),
        "acted": acted(metrics, ("guidance/self-play/games/illegal", "credit/role-baseline/baseline/apart")),
    }


def models_of(folder: Path, recipe: Any) -> list[tuple[int, Path]]:
    """(steps of self-play, model), the fine-tuned one first."""
    tuned, played = recipe.stages
    kept = {int(path.name.rpartition("-")[2]): path for path in (folder / "kept_models").glob("step-*")}
    on_the_way = [(step - tuned.steps, path) for step, path in sorted(kept.items()) if step > tuned.steps]
    return [(0, folder / "stages" / tuned.name / "model"), *on_the_way, (played.steps, folder / "model")]


# Measured in a process of its own ------------------------------------------------------------------------------------


def curves(models: Sequence[tuple[int, Path]], seed: int, draws: int) -> list[tuple[int, dict[str, float]]]:
    return [(step, measured(strategy_of(path, seed, draws))) for step, path in models]


def strategy_of(model: Path, seed: int, draws: int) -> Strategy:
    """How often a model passes, bets or states no move at each position, of so many completions at temperature 1."""
    from lyceum.core.types import Request, Sampling
    from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.papers.spiral.tasks_kuhn_poker import KuhnPoker, Position
    from lyceum.utils.aio import run_async
    from lyceum.utils.seeds import counter_seed

    policy = load_policy(ModelSettings(path=str(model), device="cpu"))
    engine = EmbeddedEngine(policy, EmbeddedConfig.model_validate({}))
    asked = [(card, moves, place(KuhnPoker(), card, moves)) for card, moves in positions()]

    async def sampled(card: int, moves: str, at: Position) -> tuple[float, float, float]:
        seeds = [counter_seed(seed, card, moves, number) for number in range(draws)]
        found = await engine.extend(Request(policy.render(at.messages()), seeds, Sampling(max_completion_tokens=4)))
        after = [at.after(policy.decode(each.tokens)) for each in found]
        passed, bet = (sum(game is not None and game.moves[-1] == move for game in after) / draws for move in "pb")
        return passed, bet, 1 - passed - bet

    async def all_of_them() -> list[tuple[float, float, float]]:
        return list(await asyncio.gather(*(sampled(*each) for each in asked)))

    return {(card, moves): found for (card, moves, _), found in zip(asked, run_async(all_of_them()), strict=True)}


def place(settings: Any, card: int, moves: str) -> Any:
    """The position as its player sees it; the other card is any other one."""
    from lyceum.papers.spiral.tasks_kuhn_poker import Position

    other = (card + 1) % 3
    return Position(settings, (card, other) if len(moves) % 2 == 0 else (other, card), moves)


def chain_accuracy(model: str, quick: bool) -> float:
    from lyceum import api

    found = api.evaluate(model, "chain", n=8 if quick else 160, samples=4, k=(1,), greedy=False, progress="silent")
    return round(found["overall"]["mean"], 4)


# The game, exactly ---------------------------------------------------------------------------------------------------


def positions() -> list[tuple[int, str]]:
    from lyceum.papers.spiral.tasks_kuhn_poker import POSITIONS

    return [(card, moves) for moves in POSITIONS for card in range(3)]


def measured(strategy: Strategy) -> dict[str, float]:
    illegal = fmean(none for _, _, none in strategy.values())
    found = {"value": earned(strategy, strategy), "exploitability": exploitability(strategy), "illegal": illegal}
    return {name: round(number, 5) for name, number in found.items()}


def exploitability(strategy: Strategy) -> float:
    """What the best answers to both of its roles earn, in chips a deal, on average."""
    as_first = max(earned(answer, strategy) for answer in pure(0))
    as_second = max(-earned(strategy, answer) for answer in pure(1))
    return (as_first + as_second) / 2


def pure(player: int) -> Iterator[Strategy]:
    """Every way to always do the same at each position of a player."""
    own = [(card, moves) for card, moves in positions() if len(moves) % 2 == player]
    for bets in product((0.0, 1.0), repeat=len(own)):
        yield {at: (1 - bet, bet, 0.0) for at, bet in zip(own, bets, strict=True)}


def earned(first: Strategy, second: Strategy) -> float:
    """What the first player earns, in chips, on average over the six deals."""
    from lyceum.papers.spiral.tasks_kuhn_poker import KuhnPoker, Position

    settings = KuhnPoker()

    def of(game: Position) -> float:
        if game.outcome is not None:
            return game.outcome[0]
        player = game.player
        passed, bet, none = (first, second)[player][game.deal[player], game.moves]
        found = none * (FORFEIT if player else -FORFEIT)
        for share, move in ((passed, settings.moves[0]), (bet, settings.moves[1])):
            after = game.after(move) if share else None
            found += share * of(after) if after is not None else 0.0
        return found

    return fmean(of(Position(settings, deal)) for deal in permutations(range(3), 2))


# Results -------------------------------------------------------------------------------------------------------------


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each arm at its rate: means over seeds with Student's 95 % interval, and exploitability on the way."""
    found: dict[str, Any] = {}
    for arm in ARMS:
        if not any(row["arm"] == arm for row in rows):
            continue
        rate = best_rate(rows, arm)
        of = [row for row in rows if (row["arm"], row["rate"]) == (arm, rate)]
        found[arm] = {
            "rate": rate,
            "seeds": len(of),
            "exploitability": over_seeds(of, lambda row: row["curve"][-1]["exploitability"]),
            "value": over_seeds(of, lambda row: row["curve"][-1]["value"]),
            "curve": [
                {
                    "step": step["step"],
                    "exploitability": round(fmean(row["curve"][i]["exploitability"] for row in of), 4),
                }
                for i, step in enumerate(of[0]["curve"])
            ],
            "chain": {what: round(fmean(row["chain"][what] for row in of), 4) for what in of[0]["chain"]},
        }
    return found


def over_seeds(rows: Sequence[Mapping[str, Any]], pick: Callable[[Mapping[str, Any]], float]) -> dict[str, float]:
    from lyceum.evaluation.intervals import mean_over_seeds

    values = [pick(row) for row in rows]
    return mean_over_seeds(values).to_json() if len(values) > 1 else {"mean": values[0]}


def show(arms: Mapping[str, Any], uniform: Mapping[str, float]) -> None:
    def cell(of: Mapping[str, float]) -> str:
        return f"{of['mean']:.3f}" + (f" [{of['low']:.3f}, {of['high']:.3f}]" if "low" in of else "")

    table(
        f"Kuhn poker: a uniform player's exploitability {uniform['exploitability']:.3f}; the game's value {VALUE:.3f}",
        ["arm", "rate", "seeds", "exploitability", "on the way", "value", "chains: base, tuned, played"],
        [
            [
                arm,
                row["rate"],
                row["seeds"],
                cell(row["exploitability"]),
                " ".join(f"{each['exploitability']:.2f}" for each in row["curve"]),
                cell(row["value"]),
                ", ".join(f"{100 * share:.0f} %" for share in row["chain"].values()),
            ]
            for arm, row in arms.items()
        ],
    )


if __name__ == "__main__":
    main()
