"""PuffeRL: collect a rollout of H steps from every row, learn from it in a few large minibatches, and again.

`evaluate` and `train` make one epoch. The mathematics lie beside this file, a page each: `rollout`, `advantage`,
`replay`, `loss`, `optim`, `schedule`. Sizes: H horizon, N rows, S rows of a minibatch.
"""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from puffer_core.config.plan import Plan
from puffer_core.config.schema import Config
from puffer_core.errors import UsageError
from puffer_core.policies import Policy
from puffer_core.policies.module import adapt_to, module_name
from puffer_core.policies.normalizer import Normalizer
from puffer_core.rl import checkpoint, diagnosis, resume
from puffer_core.rl.advantage import Estimator
from puffer_core.rl.clock import PHASES, PhaseClock
from puffer_core.rl.diagnosis import explained_variance
from puffer_core.rl.loss import TERMS, Coefficients, Targets, ppo_loss
from puffer_core.rl.means import Means
from puffer_core.rl.network import network
from puffer_core.rl.optim import make_optimizer
from puffer_core.rl.partial import PartialRollout
from puffer_core.rl.rank_means import count_over, over
from puffer_core.rl.ranks import Ranks
from puffer_core.rl.replay import ALONE, Replay, normalize
from puffer_core.rl.rollout import Rollout
from puffer_core.rl.schedule import Rates, rates_at, schedule_epochs
from puffer_core.rl.selfplay import SelfPlay
from puffer_core.rl.streams import environment_seed, generator
from puffer_core.rl.threads import OneThreadPerOperation, threads_for
from puffer_core.scores import score_of

if TYPE_CHECKING:
    from puffer_core.vector.base import Vector

START_RATIO_ERROR = 1e-3
"""A user's network may differ by this between acting and learning, which rounding alone does not."""


class PuffeRL:
    """Trains a policy on a vector of environments.

    Args:
        config: Decides everything but the counts.
        vector: The environments, not yet reset; `close` closes them.
        policy: The network, on ``device``; a module that is no policy yet is adapted, as `policies.module.adapt` does.
        plan: Horizon, minibatch size and number of epochs.
        device: Where the network and the rollout are.
        threads: Most threads to split an operation over, on a CPU; they change how fast, not what.
        ranks: The processes that train this policy together; each has environments and minibatches of its own.

    Attributes:
        global_step: Agent-steps of all ranks so far; those of absent agents, and of opponents, don't count.
        epoch: Rollouts learnt from so far, of `total_epochs`.
        gradient_steps: Updates so far.
        skipped_updates: Minibatches without a live step: they make no update.
        selfplay: The opponents, None without self-play.
    """

    def __init__(
        self,
        config: Config,
        vector: Vector,
        policy: Policy,
        plan: Plan,
        *,
        device: str = "cpu",
        threads: int = 1,
        ranks: Ranks = ALONE,
    ) -> None:
        train, place = config.train, torch.device(device)
        policy = adapt_to(vector, policy, config.policy, generator(config.base.seed, "policy")).to(place)  # type: ignore[assignment]
        self.config, self.vector, self.policy, self.plan, self.ranks = config, vector, policy, plan, ranks
        for tensor in checkpoint.plain(policy).state_dict().values():
            ranks.broadcast_(tensor)
        self.global_step = self.epoch = self.gradient_steps = 0
        self.total_epochs, self.schedule_epochs = plan.epochs, schedule_epochs(train, plan)
        self._clock, self._network = PhaseClock(), network(policy, train, place)
        is_plain = self._network is policy and not train.compile
        largest = min(plan.minibatch_size, train.max_minibatch_size)
        self._threads = threads_for(policy, largest, threads, is_plain=is_plain)
        self.optimizer = make_optimizer(policy, train)
        meets = config.selfplay.enabled and config.selfplay.share > 0
        self.selfplay = SelfPlay(config, vector, policy, self._network, place, ranks) if meets else None
        kind = PartialRollout if vector.agents_per_batch < vector.num_agents else Rollout
        self.rollout = kind(
            vector,
            self._network,
            plan.horizon,
            generator(config.base.seed, "actions", ranks.rank),
            device=place,
            storage=torch.device("cpu") if train.cpu_offload else place,
            reward_clip=train.reward_clip,
            reset_state=train.reset_state,
            clock=self._clock,
            threads=threads_for(policy, vector.agents_per_batch, threads, is_plain=is_plain),
            selfplay=self.selfplay,
        )
        # A minibatch above the limit goes through the network in parts; its gradient is their sum.
        segments, most = plan.minibatch_size // plan.horizon, max(1, train.max_minibatch_size // plan.horizon)
        self._parts = [slice(first, first + most) for first in range(0, segments, most)]
        self.replay = Replay(
            segments,
            prio=train.prio,
            alpha=train.prio_alpha,
            generator=generator(config.base.seed, "replay", ranks.rank),
            candidates=None if self.selfplay is None else self.selfplay.learners,
        )
        self.skipped_updates = 0
        self.is_started = False
        self._is_collected = False
        self._ratio = torch.ones(plan.horizon, vector.num_agents, device=place)
        self._estimator = Estimator(plan.horizon, vector.num_agents, self._ratio)
        self.environment, self.losses, self.episodes = Means(), Means(), 0.0
        self._started_at = time.perf_counter()
        self._last_log = (0, self._started_at, self.profile)

    @property
    def profile(self) -> dict[str, float]:
        """Seconds by phase since the trainer was made."""
        return dict(self._clock.seconds)

    @OneThreadPerOperation()
    def evaluate(self) -> None:
        """Collect one rollout: H actions of every row, with the present weights.

        Raises:
            NonFiniteError: If an observation, a reward or an output of the network is not finite.
        """
        if not self.is_started:
            self.rollout.start(environment_seed(self.config.base.seed))
            self.is_started = True
        if self.selfplay is not None:
            self.selfplay.draw()
        live = self.rollout.collect()
        self.rollout.check(self.global_step)
        self.global_step += int(self.ranks.total(live))
        logged = self.vector.drain_log()
        if self.selfplay is not None:
            logged = self.selfplay.take_log(logged)
        if logged:
            count = logged.pop("n", 1.0)
            self.environment.add(logged, count)
            self.episodes += count
        self._is_collected = True
        self._clock.mark("misc")

    @OneThreadPerOperation()
    def train(self) -> dict[str, float]:
        """Learn from the rollout; return the mean losses.

        Raises:
            UsageError: Without a rollout that has not been learnt from.
            NonFiniteError: If a loss or a gradient is not finite; the weights are then those of the update before.
        """
        if not self._is_collected:
            raise UsageError("train() without a new rollout", hint="call evaluate() before each train()")
        self._clock.start()
        train, rollout = self.config.train, self.rollout
        rates = rates_at(train, self.epoch, self.schedule_epochs)
        folded = rollout.fold(train.gamma, train.gae_lambda)
        self._ratio.fill_(1.0)
        self.replay.begin_epoch()
        losses = Means()
        for _ in range(self.plan.minibatches_per_epoch):
            estimate = self._estimator.estimate(
                folded, rollout.values, self._ratio, train.vtrace_rho_clip, train.vtrace_c_clip
            )
            self._clock.mark("advantage")
            rows, weights = self.replay.next_rows(estimate, rates.prio_beta)
            losses.add(self._update(rows, weights, estimate.index_select(1, rows), rates), 1.0)
        losses.add({"explained_variance": self._explained_variance(estimate, folded.live)}, 1.0)
        normalizer = getattr(checkpoint.plain(self.policy), "normalizer", None)
        if isinstance(normalizer, Normalizer):
            # Only now: until here, training had to see what acting saw.
            count_over(self.ranks, normalizer, rollout.received())
        self.epoch += 1
        if self.selfplay is not None:
            self.selfplay.end_epoch(self.epoch, self.global_step)
        self._is_collected = False
        means = losses.take("")
        self.losses.add(means, 1.0)
        self._clock.mark("misc")
        return means

    def _explained_variance(self, advantage: Tensor, live: Tensor | None) -> float:
        values = self.rollout.values[:-1]
        if self.selfplay is not None:
            learners = self.selfplay.learners
            advantage, values = advantage.index_select(1, learners), values.index_select(1, learners)
            live = None if live is None else live.index_select(1, learners)
        return explained_variance(advantage, values, live)

    def _update(self, rows: Tensor, weights: Tensor | None, advantage: Tensor, rates: Rates) -> dict[str, float]:
        """Make one gradient step on the drawn rows, (S,), with their advantages, (H, S); return its losses."""
        train = self.config.train
        live = self.rollout.live(rows)
        count = self.ranks.total(float(advantage.numel() if live is None else live.sum()))
        if count == 0:
            self.skipped_updates += 1
            return {}
        scaled = normalize(advantage, live, self.ranks) if train.normalize_advantages else advantage
        scaled = scaled if weights is None else scaled * weights
        coefs = Coefficients(train.clip_coef, train.vf_clip_coef, train.vf_coef, rates.ent_coef)

        self.optimizer.gradient.zero_()
        losses = torch.zeros(len(TERMS) + 1, device=rows.device)
        for part in self._parts:
            here = None if live is None else live[:, part]
            with self._threads:
                losses += self._learn(rows[part], advantage[:, part], scaled[:, part], here, count, coefs)
        self.ranks.sum_(self.optimizer.gradient)
        self.ranks.sum_(losses)
        self._step(rows, losses, rates.learning_rate)
        return dict(zip((*TERMS, "total"), losses.tolist(), strict=True))

    def _learn(
        self, rows: Tensor, advantage: Tensor, scaled: Tensor, live: Tensor | None, count: float, coefs: Coefficients
    ) -> Tensor:
        """Add the gradient of one part of a minibatch, write its ratios and values back, and return its losses."""
        policy, rollout = self.policy, self.rollout
        segments, old = rollout.gather(rows), rollout.values[:-1].index_select(1, rows)
        targets = Targets(
            actions=segments.actions.flatten(0, 1),
            logprobs=segments.logprobs.flatten(),
            values=old.flatten(),
            advantages=scaled.flatten(),
            returns=(advantage + old).flatten(),
            action_mask=None if segments.action_mask is None else segments.action_mask.flatten(0, 1),
            live=None if live is None else live.flatten(),
            count=count,
        )
        self._clock.mark("replay")
        logits, values = self._network(segments.observations, segments.state, segments.resets, **segments.agents)
        loss, terms, ratio = ppo_loss(logits, values, policy.logstd, policy.layout, targets, coefs)
        if not self.gradient_steps and module_name(policy):
            self._compare_start(ratio)
        self._clock.mark("loss_forward")
        self.optimizer.gradient += self.optimizer.gradient_of(loss)
        # The next minibatch sees the ratios and values of this one's network; the bootstrap column stays.
        if self.config.train.vtrace:
            self._ratio.index_copy_(1, rows, ratio.view_as(old))
        rollout.values[:-1].index_copy_(1, rows, values.detach().view_as(old))
        self._clock.mark("backward")
        return torch.cat([terms, loss.detach()[None]])

    def _compare_start(self, ratio: Tensor) -> None:
        """Warn if a user's network computes other numbers for learning than it did for acting, before any update."""
        error = float((ratio - 1.0).abs().max())
        if error > START_RATIO_ERROR:
            msg = f"the policy `{module_name(self.policy)}` computes other probabilities for learning than for acting"
            warnings.warn(f"{msg}: before any update their ratio is off by {error:.2g}", stacklevel=2)

    def _step(self, rows: Tensor, losses: Tensor, learning_rate: float) -> None:
        """Clip and apply the gradient, unless a loss or the gradient is not finite: then stop, weights untouched."""
        norm = self.optimizer.clip(self.config.train.max_grad_norm)
        if not (math.isfinite(norm) and bool(losses.isfinite().all())):
            raise diagnosis.non_finite(self, rows, losses, self._ratio)
        self.optimizer.step(learning_rate)
        self.gradient_steps += 1
        self._clock.mark("optimiser")

    def mean_and_log(self) -> dict[str, float]:
        """Return the metrics since the last call, named as in ``metrics.jsonl``."""
        now, profile = time.perf_counter(), self.profile
        rates = rates_at(self.config.train, max(0, self.epoch - 1), self.schedule_epochs)  # those train() used last
        last_step, last_time, last_profile = self._last_log
        self._last_log = (self.global_step, now, profile)
        environment, losses, episodes = over(self.ranks, self.environment, self.losses, self.episodes)
        metrics: dict[str, float] = {
            "step": self.global_step,
            "epoch": self.epoch,
            "seconds": now - self._started_at,
            "steps_per_second": (self.global_step - last_step) / max(now - last_time, 1e-9),
            **environment.take("env/"),
            **losses.take("loss/"),
            **{f"perf/{phase}": profile[phase] - last_profile[phase] for phase in PHASES},
            "train/learning_rate": rates.learning_rate,
            "train/ent_coef": rates.ent_coef,
            "train/prio_beta": rates.prio_beta,
            "train/gradient_steps": self.gradient_steps,
            "train/skipped_updates": self.skipped_updates,
            **({} if self.selfplay is None else self.selfplay.pool.metrics()),
        }
        if episodes:
            metrics["env/n"] = episodes
            score = score_of(metrics)
            if score is not None:
                metrics["score"] = score
        self.environment, self.losses, self.episodes = Means(), Means(), 0.0
        return metrics

    def print_dashboard(self) -> None:
        """Print one line: how far, how fast."""
        elapsed = time.perf_counter() - self._started_at
        speed = self.global_step / elapsed if elapsed > 0 else 0.0
        print(f"epoch {self.epoch}/{self.total_epochs}  step {self.global_step:,}  {speed:,.0f} steps/s")  # noqa: T201

    def save(self, path: Path) -> None:
        """Write a checkpoint to the folder ``path``, whole or not at all.

        Raises:
            UsageError: Between `evaluate` and `train`: a rollout is not saved.
            RunError: If it can't be written.
        """
        if self._is_collected:
            raise UsageError("save() between evaluate() and train()", hint="save after train()")
        resume.save(self, path)

    def load(self, path: Path) -> tuple[str, ...]:
        """Go on from a checkpoint; return what could not be restored, by name: nothing, if it goes on bit for bit.

        Raises:
            RunError: If the checkpoint is damaged or belongs to something else.
        """
        lost = resume.load(self, path)
        self._is_collected = False
        self._last_log = (self.global_step, time.perf_counter(), self.profile)
        return lost

    def close(self) -> None:
        """Close the environments."""
        self.vector.close()
