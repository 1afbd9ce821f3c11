"""The Universal Transformer with adaptive computation time (Graves 2016; Dehghani et al. 2019).

    p(t)  = sigmoid(w . H(t-1) + b)                   the chance to halt, at every position
    N     = first t at which p(1) + ... + p(t) >= 1 - epsilon, at most the cap
    R     = 1 - (p(1) + ... + p(N-1))                 the remainder, weight of the last update
    read  : p(1) H(1) + ... + p(N-1) H(N-1) + R H(N)
    loss  : cross-entropy + ponder * mean over positions of (N + R)

A position that has halted is frozen, and still attended to. One that the cap cuts off gives its
remainder to its last state as well; the published model drops it there (`drop_remainder`), so that the
weights of such a position add up to less than 1 and its remainder costs nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepen.blocks import first
from deepen.config import ActConfig, ModelConfig
from deepen.core import Core, Pack, float32
from deepen.core import Step as SharedStep
from deepen.model import Model
from deepen.shapes import Output, Scene, State
from deepen.unroll import HaltingRule


@dataclass(frozen=True, kw_only=True)
class ActState(State):
    """The thought of every position, and how far it is."""

    mixture: Tensor  # (B, L, D) what has been weighted and added up so far
    chance: Tensor  # (B, L) the sum of the halting chances
    left: Tensor  # (B, L) what that sum had left of 1 before the latest update
    num_updates: Tensor  # (B, L)
    running: Tensor  # (B, L)


def untouched(hidden: Tensor) -> ActState:
    """Nobody has begun."""
    zero = torch.zeros_like(hidden[..., 0])
    return ActState(
        hidden=hidden,
        mixture=torch.zeros_like(hidden),
        chance=zero,
        left=torch.ones_like(zero),
        num_updates=zero,
        running=torch.ones_like(zero, dtype=torch.bool),
    )


@dataclass(frozen=True)
class ActStep:
    """One update of those who are still running."""

    step: SharedStep
    halt: nn.Linear
    config: ActConfig

    def enter(self, scene: Scene) -> Scene:
        return self.step.enter(scene)

    def __call__(self, state: State, scene: Scene, t: int, num: int) -> ActState:
        before = state if isinstance(state, ActState) else untouched(state.hidden)
        now = before.picked(lambda x: first(x, num))
        if t > self.config.cap or not before.running.any():
            return now
        after = self._update(before, now.running, scene, t, num)
        chance = now.chance + torch.sigmoid(self.halt(now.hidden).squeeze(-1)) * now.running
        halts = now.running & (chance >= 1 - self.config.epsilon)
        left = torch.where(now.running, 1 - now.chance, now.left)
        weight = torch.where(halts, left, chance - now.chance)
        return ActState(
            hidden=after,
            mixture=now.mixture + weight[..., None] * after,
            chance=chance,
            left=left,
            num_updates=now.num_updates + now.running,
            running=now.running & ~halts,
        )

    def _update(self, state: ActState, running: Tensor, scene: Scene, t: int, num: int) -> Tensor:
        """H(t) of the first `num` positions: of those that run; the others keep theirs.

        Nothing is computed for questions that have halted, and only attention for positions that have.
        """
        hidden, chosen = state.hidden, torch.arange(running.numel(), device=running.device).view_as(running)
        frozen = first(hidden, num)
        # Else it is the unroll that leaves positions out, or a row has several questions and none can leave.
        if num == scene.first.shape[1] and scene.asked_in is None:
            busy = (~scene.everywhere(~running)).nonzero().squeeze(1)
            scene, pick = scene.select(busy)
            hidden, running, chosen, num = pick(hidden), pick(running), pick(chosen), pick(running).shape[1]
        parts = (*self.step.attend(State(hidden=hidden), scene, t, num), first(hidden, num))
        x, mixed, before = (part.flatten(0, 1)[running.flatten()][None] for part in parts)
        after = self.step.think(x, mixed, before, scene, t).hidden[0]
        return frozen.flatten(0, 1).index_copy(0, chosen[running], after).view_as(frozen)


@dataclass(frozen=True)
class EveryPositionHalted:
    """A question stops when all its positions have; `together`: when those of the whole batch have."""

    max_steps: int
    together: bool = False
    patience: int = 1

    def wants_to_stop(self, before: State, after: State, scene: Scene, t: int | Tensor) -> Tensor:
        assert isinstance(after, ActState)
        done = scene.everywhere(~after.running)
        return done.all().expand_as(done) if self.together else done


class ActCore(nn.Module):
    """The shared block and the halting unit."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.block = Core(config.core)
        self.halt = nn.Linear(config.core.width, 1)


class AdaptiveTime(Model):
    """One shared step, as often as each position wants."""

    core: ActCore

    def make_core(self, config: ModelConfig) -> ActCore:
        return ActCore(config)

    @property
    def act(self) -> ActConfig:
        assert self.config.act is not None
        return self.config.act

    def prepare(self, pack: Pack = float32) -> ActStep:
        return ActStep(self.core.block.prepare(pack), self.core.halt, self.act)

    def seen(self, state: State) -> Tensor:
        assert isinstance(state, ActState)
        if self.act.drop_remainder:
            return state.mixture
        return state.mixture + ((1 - state.chance) * state.running)[..., None] * state.hidden

    def halting(self, most: int) -> HaltingRule:
        return EveryPositionHalted(min(most, self.act.cap))

    def halting_in_training(self, num_steps: int) -> HaltingRule:
        return EveryPositionHalted(self.act.cap, together=True)  # the cost needs everyone's state

    def cost(self, output: Output, scene: Scene) -> Tensor | float:
        """The ponder cost: the mean over positions of (N + R)."""
        state = output.state
        assert isinstance(state, ActState)
        left = state.left * ~state.running if self.act.drop_remainder else state.left
        counted = ((state.num_updates + left) * scene.valid).sum()
        num = len(scene.read_at) * self.act.slots if self.act.slots else scene.valid.sum()
        return self.act.ponder * counted / num
