"""An environment of your own, trained end to end on a CPU in about ten seconds: python examples/own_environment.py"""

import gymnasium
import numpy as np

import tightrope


class Wire(gymnasium.Env):
    """A walk along a wire in gusts of wind: lean left, step, lean right. A point a step; lean too far and you fall."""

    observation_space = gymnasium.spaces.Box(-3, 12, (2,), np.float32)  # what the agent sees: place and lean
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.zeros(2, np.float32)
        return self.state.copy(), {}

    def step(self, action):
        steps, gust = action == 1, (0, 2, -1)[int(self.state[0]) % 3]
        self.state += (1, gust) if steps else (0, action - 1)
        fell, arrived = abs(self.state[1]) > 2, self.state[0] == 12
        return self.state.copy(), float(steps and not fell), bool(fell or arrived), False, {}


if __name__ == "__main__":
    agent = tightrope.train(env=lambda: gymnasium.wrappers.TimeLimit(Wire(), 60), frames=6_000, device="cpu")
    print(f"mean score of 100 games: {agent.evaluate(episodes=100).mean:.2f} of 12")
