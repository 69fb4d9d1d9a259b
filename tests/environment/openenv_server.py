"""An environment of OpenEnv, as its own template has one: somebody has a number in mind. Run with PORT and SESSIONS."""

import os
import random
import sys
import time

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Guess(Action):
    number: int


class Hint(Observation):
    hint: str = ""


class Numbers(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, highest=9, **more):
        self.number, self.highest = random.Random(seed).randint(1, highest), highest
        return Hint(hint=f"From 1 to {highest}.")

    def step(self, action):
        match action.number:
            case 101:
                raise ValueError("not this number")
            case 102:
                os._exit(3)
            case 103:
                time.sleep(3)
        if action.number == self.number:
            return Hint(hint="yes", reward=1.0, done=True)
        return Hint(hint="higher" if action.number < self.number else "lower", reward=-0.1)

    @property
    def state(self):
        return State()


if __name__ == "__main__":
    app = create_app(Numbers, Guess, Hint, max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
