"""Every configuration key: its type, its legal range, its default and one sentence about it.

These dataclasses are the only list of keys. The ini files, the command line, ``puffer config show``, ``default.ini``
and ``docs/options.md`` are all derived from them. An option has one spelling: ini ``[train] learning_rate``, command
line ``--train.learning-rate``, field ``TrainConfig.learning_rate``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class Range:
    """The numbers a key accepts: a closed interval unless ``*_open``; infinity only where not ``finite``."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    finite: bool = True


INT64_MAX = 2**63 - 1
Auto = Literal["auto"]
Positive = Annotated[float, Range(0.0, low_open=True)]
NonNegative = Annotated[float, Range(0.0)]
Fraction = Annotated[float, Range(0.0, 1.0)]
Decay = Annotated[float, Range(0.0, 1.0, high_open=True)]
Limit = Annotated[float, Range(0.0, low_open=True, finite=False)]
Count = Annotated[int, Range(1, INT64_MAX)]
CountOrAuto = Annotated[int | Auto, Range(1, INT64_MAX)]


@dataclass(frozen=True)
class BaseConfig:
    """The run as a whole. On the command line these keys carry no section: ``--seed 3``."""

    seed: Annotated[int, Range(0, INT64_MAX)] = 42
    """The one seed; those of environments, networks, sampling and evaluation are derived from it."""
    trainer: str = "auto"
    """Name of the trainer, or ``auto``: the one of highest priority that supports the job."""
    runs_dir: str = "runs"
    """Folder that holds the run directories; the environment variable ``PUFFER_RUNS`` changes the default."""
    preset: str = ""
    """Name of the ``[preset.NAME.*]`` overlay to apply on top of the environment's ini; empty for none."""
    logger: tuple[str, ...] = ()
    """Names of the loggers that mirror the metrics, separated by commas; ``jsonl`` is always on."""
    checkpoint_interval: Count = 200
    """Epochs between two checkpoints; the last epoch always writes one."""
    keep_checkpoints: Annotated[int, Range(0, INT64_MAX)] = 0
    """Newest checkpoints of a run to keep, older ones are deleted; 0 keeps all."""
    eval_episodes: Annotated[int, Range(1, 10_000_000)] = 1000
    """Episodes played by the evaluation at the end of ``run``."""


@dataclass(frozen=True)
class VecConfig:
    """How environments are stepped together."""

    backend: str = "auto"
    """Name of the vector backend, or ``auto``: the fastest one that fits."""
    num_envs: CountOrAuto = "auto"
    """Environment objects; ``auto`` is 1 for an environment in C, 64 agents' worth for one in Python."""
    num_workers: CountOrAuto = "auto"
    """Worker processes of a backend that has them; more than 1 makes ``backend = auto`` choose one."""
    batch_size: CountOrAuto = "auto"
    """Environment objects per batch of a backend with workers; fewer than ``num_envs`` makes ``auto`` choose one."""
    num_threads: Annotated[int | Auto, Range(1, 256)] = "auto"
    """Threads of environments in C and of learning; ``auto``: one a core. Only ``mlp`` has equal bits with any."""
    zero_copy: bool = True
    """Hand out contiguous blocks of workers without copying; off is fully asynchronous and needs workers."""
    strict: bool = False
    """Refuse an action outside the action space instead of replacing it."""
    start_method: Literal["auto", "fork", "spawn", "forkserver"] = "auto"
    """How worker processes are started; ``auto`` is ``fork`` on Linux, else ``spawn``."""
    timeout: NonNegative = 0.0
    """Seconds that a step or a reset may take in a worker before the run ends; 0 is any time."""


@dataclass(frozen=True)
class PolicyConfig:
    """The network."""

    name: str = "auto"
    """Name of the encoder; ``auto`` is ``mlp`` for numbers, ``cnn`` for pictures, ``multi-input`` for nested ones."""
    core: Literal["none", "mingru", "lstm"] = "mingru"
    """What follows the encoder: feed-forward layers, or a recurrent core: ``mingru`` with highway, or ``lstm``."""
    hidden_size: Annotated[int, Range(1, 65536)] = 128
    """Width of the trunk."""
    num_layers: Annotated[int, Range(1, 64)] = 2
    """Layers after the encoder."""
    activation: Literal["tanh", "gelu"] = "gelu"
    """Activation of the encoder and of feed-forward layers; the recurrent core has its own."""
    bias: bool = True
    """Give encoder, decoder and ``lstm`` a bias, zero at the start; off is the published form of ``mingru``."""
    box: Literal["gaussian", "squashed"] = "gaussian"
    """How numbers of an action reach their bounds: clipped (``gaussian``), or ``squashed`` into them by tanh."""
    parameters: Literal["shared", "per-type", "per-agent"] = "shared"
    """Which agents of an environment share weights: all, those of one type, or none."""
    normalize_observations: bool | Auto = False
    """Give each number of an observation mean 0 and variance 1, as far as the run has seen it; ``auto``: if floats."""


@dataclass(frozen=True)
class TrainConfig:
    """The learning algorithm (PuffeRL)."""

    total_timesteps: Count = 10_000_000
    """Agent-steps to train for, rounded down to whole rollouts."""
    schedule_timesteps: Annotated[int, Range(0, INT64_MAX)] = 0
    """Agent-steps after which everything scheduled has its last value; 0 is ``total_timesteps``."""
    device: str = "auto"
    """Device that learns: ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` (for short ``--device``)."""
    processes: CountOrAuto = 1
    """Processes of this machine that ``train`` and ``run`` start to share the work; ``auto`` is one for each GPU."""
    horizon: Count = 64
    """Steps of one rollout per agent; also the length through which gradients flow in time."""
    minibatch_size: Count = 8192
    """Transitions per gradient step; a multiple of ``horizon``."""
    max_minibatch_size: Count = 32768
    """Transitions that go through the network at once; a larger minibatch accumulates gradients (torch)."""
    replay_ratio: Annotated[float, Range(0.0, 1000.0, low_open=True)] = 1.0
    """How often a transition is trained on; a rollout gives floor(ratio x batch / minibatch) gradient steps."""
    optimizer: Literal["muon", "adam"] = "muon"
    """``muon`` orthogonalises the update of every matrix; ``adam`` is often better for small problems."""
    learning_rate: NonNegative = 0.015
    """Step size at epoch 0; follows a cosine down to ``min_lr_ratio`` of it."""
    anneal_lr: bool = True
    """Lower the learning rate along a cosine over the run."""
    min_lr_ratio: Fraction = 0.0
    """Where the cosine of the learning rate ends, as a share of ``learning_rate``."""
    momentum: Decay = 0.95
    """Momentum of ``muon``."""
    adam_beta1: Decay = 0.9
    """Decay of the first moment of ``adam``."""
    adam_beta2: Decay = 0.999
    """Decay of the second moment of ``adam``."""
    adam_eps: Positive = 1e-8
    """Added to the denominator of ``adam``."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay: a step multiplies weights by 1 - learning rate x this."""
    max_grad_norm: Limit = 1.5
    """Largest global norm of the gradient; ``inf`` does not clip."""
    gamma: Fraction = 0.995
    """Discount per step."""
    gae_lambda: Fraction = 0.9
    """Bias-variance mix of the advantage estimate."""
    clip_coef: Limit = 0.2
    """Half-width of the interval to which the policy ratio is clipped; ``inf`` does not clip."""
    vf_coef: NonNegative = 2.0
    """Weight of the value loss."""
    vf_clip_coef: Limit = 0.2
    """How far a value may move from the rollout's before its loss is clipped; ``inf`` does not clip."""
    ent_coef: NonNegative = 0.001
    """Weight of the entropy bonus at epoch 0."""
    anneal_ent_coef: bool = False
    """Lower the entropy bonus along a cosine over the run."""
    min_ent_coef_ratio: Fraction = 0.1
    """Where the cosine of the entropy bonus ends, as a share of ``ent_coef``."""
    vtrace: bool = True
    """Correct advantages by importance ratios; off takes every ratio as 1."""
    vtrace_rho_clip: Limit = 1.0
    """Largest importance ratio on a temporal difference."""
    vtrace_c_clip: Limit = 1.0
    """Largest importance ratio on the trace."""
    prio: bool = True
    """Draw segments by priority, with replacement; off visits every row once per pass, shuffled."""
    prio_alpha: NonNegative = 0.8
    """Exponent of a segment's priority, the sum of its absolute advantages; 0 draws uniformly."""
    prio_beta0: Fraction = 0.2
    """Exponent of the weights that correct for priorities at epoch 0; rises over the run."""
    normalize_advantages: bool = True
    """Normalise advantages per minibatch over its live steps."""
    reward_clip: NonNegative = 0.0
    """Clip rewards to plus or minus this before learning; 0 is off. Logged scores are always raw."""
    reset_state: bool = False
    """Zero the recurrent state at the start of every rollout instead of carrying it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Compute type of the network; losses, values and log-probabilities are always float32."""
    compile: bool = False
    """Compile encoders other than ``mlp``, and your networks, with ``torch.compile``; a CPU needs a C++ compiler."""
    cpu_offload: bool = False
    """Keep rollouts in main memory and move each minibatch to the device (torch)."""
    checkpoint_seconds: NonNegative = 0.0
    """Also write a checkpoint whenever this many seconds have passed; 0 is off."""


@dataclass(frozen=True)
class SelfPlayConfig:
    """Self-play: in a share of the environments, frozen copies of the learner have all seats but one."""

    enabled: bool = False
    """Play against a pool of past selves; needs an environment with at least two agents."""
    share: Fraction = 0.5
    """Share of the environments in which opponents from the pool play; elsewhere the learner has every seat."""
    interval: Count = 20
    """Epochs after which a copy of the learner joins the pool; the untrained one is its first."""
    opponents: Annotated[int, Range(1, 1000)] = 8
    """Largest size of the pool; beyond it, the one leaves whose neighbours are closest in time."""
    concurrent: Annotated[int, Range(1, 1000)] = 2
    """Opponents drawn for each epoch; every one more is a forward pass more per step."""
    sampling: Literal["uniform", "recent", "prioritised"] = "uniform"
    """How they are drawn: alike, twice as often as the next older one, or by the points they take from the learner."""
    elo_k: Positive = 4.0
    """Most points that one game moves the learner's Elo rating by."""
    elo_scale: Positive = 400.0
    """Elo points ahead at which ten of eleven points of a game are expected."""


@dataclass(frozen=True)
class WrapConfig:
    """Wrappers of the environments, applied in the order in which they are listed; later options come last.

    A key that is not listed, or has its default, is off. ``action_repeat``, ``time_limit`` and ``episode_stats`` are
    for environments in Python. What is logged is never changed by a wrapper of rewards.
    """

    frame_stack: Annotated[int, Range(1, 256)] = 1
    """Observations shown together, the oldest first: pictures along their channels, vectors end to end."""
    action_repeat: Annotated[int, Range(1, 65536)] = 1
    """Steps of the environment that take the same action; rewards are summed, and an end cuts it short."""
    clip_action: bool = False
    """Accept any number as a continuous action and clip it to the environment's bounds."""
    resize: str = ""
    """New size of pictures, height x width as in ``84x84``; each pixel is the mean of the area it covers."""
    grayscale: bool = False
    """Show pictures of three channels in shades of grey, as one channel."""
    reward_clip: NonNegative = 0.0
    """Clip rewards to plus or minus this; 0 is off."""
    reward_scale: float = 1.0
    """Multiply rewards by this."""
    reward_normalize: bool = False
    """Divide rewards by the running standard deviation of discounted returns."""
    reward_gamma: Fraction = 0.99
    """Discount of the returns of ``reward_normalize``; no wrapper of its own."""
    episode_stats: bool = False
    """Replace infos of steps by one at the end of an episode: its return, its length, and sums of the numbers."""
    time_limit: Annotated[int, Range(0, INT64_MAX)] = 0
    """Truncate episodes after this many steps; 0 is off."""


@dataclass(frozen=True)
class SweepConfig:
    """Hyper-parameter search. A range is a section of its own: ``[sweep.train.learning_rate]``."""

    sweeper: str = "protein"
    """Name of the sweeper."""
    metric: str = "score"
    """Metric to improve: a key of the environment's log, without ``env/``."""
    goal: Literal["maximize", "minimize"] = "maximize"
    """Whether larger or smaller values of the metric are better."""
    metric_distribution: Literal["linear", "percentile"] = "linear"
    """How the metric is scaled before it is modelled."""
    downsample: Count = 5
    """Points of a trial's learning curve that are shown to the sweeper."""
    max_runs: Count = 200
    """Trials of the sweep."""
    max_suggestion_cost: Positive = 3600.0
    """Largest expected cost of a suggested trial, in seconds."""


@dataclass(frozen=True)
class SweepRange:
    """One searched dimension: ``[sweep.SECTION.KEY]``."""

    distribution: Literal["uniform", "int_uniform", "uniform_pow2", "log_normal", "logit_normal"] = "uniform"
    """Scale on which values are drawn."""
    min: float = 0.0
    """Smallest value."""
    max: float = 1.0
    """Largest value."""
    scale: Annotated[float | Auto, Range(0.0, low_open=True)] = "auto"
    """Standard deviation of suggestions around the best points."""


@dataclass(frozen=True)
class CommandConfig:
    """What one call of ``run`` or ``train`` is asked; never saved with the run, so never restored by ``--resume``."""

    config: str = ""
    """Path of an ini file whose values override those of the environment."""
    resume: str = ""
    """Run to go on with, in its own directory: a path, an id or ``latest``; or the path of one of its checkpoints."""
    resume_schedule: Literal["refuse", "stretch", "keep"] = "refuse"
    """What schedules do where ``resume`` changes ``total_timesteps``: span the new total, or stay those of the old."""
    stop_at: Annotated[int | None, Range(1, INT64_MAX)] = None
    """End after this many agent-steps, schedules untouched, to be resumed later."""
    stop_at_score: float | None = None
    """End when the mean score of the last 100 or more logged episodes reaches this."""


OriginKind = Literal["default", "family", "env", "preset", "file", "option", "edited"]


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    Attributes:
        kind: In order of precedence: default, family ini, environment ini, preset overlay, ``--config`` file, option of
            the command line, edited from Python.
        where: ``path:line`` for files, the option as typed for options, else empty.
    """

    kind: OriginKind = "default"
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".rstrip()


@dataclass(frozen=True)
class Config:
    """A resolved configuration.

    Attributes:
        env: Parameters of the environment; holds ``num_envs`` (a number or ``auto``) for environments in C.
        wrap: Wrappers that are on, in the order in which they are applied.
        ranges: Searched dimensions, ``train.learning_rate`` -> range.
        plugins: Options of policies, trainers, loggers and sweepers, by the name of their section: instances of the
            dataclasses their specs name. `options_of` looks them up.
        origins: Dotted key (``train.gamma``; base keys bare, ``seed``) -> where its value came from.
    """

    base: BaseConfig = field(default_factory=BaseConfig)
    vec: VecConfig = field(default_factory=VecConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    selfplay: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    env: Mapping[str, object] = field(default_factory=dict)
    wrap: Mapping[str, object] = field(default_factory=dict)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    ranges: Mapping[str, SweepRange] = field(default_factory=dict)
    plugins: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)

    def options_of(self, name: str) -> Any:
        """Return the options of the policy, trainer, logger or sweeper of that name, None where it has none."""
        return self.plugins.get(section_of(name))


def section_of(name: str) -> str:
    """Return the section that holds the options of a plugin object, as keys are spelt: ``_`` for ``-``."""
    return name.replace("-", "_")


SECTIONS: dict[str, type[Any]] = {
    "base": BaseConfig,
    "vec": VecConfig,
    "policy": PolicyConfig,
    "train": TrainConfig,
    "selfplay": SelfPlayConfig,
    "wrap": WrapConfig,
    "sweep": SweepConfig,
}
"""Sections with a fixed list of keys; ``env`` is the environment's own."""
