"""Several processes train one policy: equal weights, different experience, one writer, and an end whatever happens."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fakes_ranks import end, in_threads, reports, start
from gymnasium import spaces

from puffer_core import launch
from puffer_core.config import load
from puffer_core.config.plan import plan
from puffer_core.errors import LostRankError, OptionError, RunError
from puffer_core.place import PLACE, Place, place
from puffer_core.policies import ActionLayout
from puffer_core.policies.normalizer import Normalizer
from puffer_core.rl.loss import Coefficients, Targets, ppo_loss
from puffer_core.rl.means import Means
from puffer_core.rl.rank_means import count_over, over
from puffer_core.rl.ranks import Ranks
from puffer_core.rl.replay import normalize
from puffer_core.training.distributed import follow

PACKAGE = Path(__file__).parents[2] / "puffer_core"
COLLECTIVES = {"sum_", "max_", "broadcast_", "gather", "broadcast_object", "any", "total"}


def test_a_process_that_nobody_placed_is_alone():
    assert place({"WORLD_SIZE": "4"}) == Place()
    placed = dict(zip(PLACE, ("1", "4", "1", "host", "29500"), strict=True))
    assert place(placed) == Place(1, 4, 1)
    assert place({**placed, "LOCAL_WORLD_SIZE": "2"}) == Place(1, 4, 1, 2)
    with pytest.raises(OptionError, match="LOCAL_WORLD_SIZE=0 must be 1 or more"):
        place({**placed, "LOCAL_WORLD_SIZE": "0"})


def test_launch_tells_each_rank_how_many_share_the_machine():
    assert place(launch._variables(1, 3, 29500)) == Place(1, 3, 1, 3)


class Ended(Ranks):
    """Tells a rank to close, once it may; or fails as where another is gone."""

    def __init__(self, call: str) -> None:
        self.call, self.ends = call, 0

    def gather(self, value):
        return [(self.call, (), {})]

    def expect_end(self):
        self.ends += 1


class Closing:
    """A trainer that looks, as it closes, whether its rank still watches the others."""

    def __init__(self, ranks):
        self.ranks, self.ends_at_close = ranks, None

    def save(self):
        raise LostRankError("another process of this run is gone")

    def close(self):
        self.ends_at_close = self.ranks.ends


def test_a_rank_that_is_let_go_watches_the_others_no_more_while_it_closes():
    trainer = Closing(Ended("close"))
    follow(trainer, trainer.ranks, None, None)
    assert trainer.ends_at_close == 1


def test_a_rank_that_dies_during_a_save_is_no_full_disk():
    trainer = Closing(Ended("save"))
    with pytest.raises(LostRankError, match="is gone"):
        follow(trainer, trainer.ranks, None, None)
    assert not issubclass(LostRankError, RunError)


@pytest.mark.parametrize(("rank", "message"), [("x", "must be integers"), ("4", "is not below WORLD_SIZE=4")])
def test_a_wrong_place_is_refused(rank, message):
    with pytest.raises(OptionError, match=message):
        place(dict(zip(PLACE, (rank, "4", "1", "host", "29500"), strict=True)))


def test_one_rank_sums_nothing():
    ranks, tensor = Ranks(), torch.arange(3)
    assert ranks.sum_(tensor) is tensor
    assert ranks.total(2.0) == 2.0
    assert ranks.any(True)
    assert not ranks.any(False)


def test_the_total_is_over_all_processes():
    options = {"train.total_timesteps": "65536", "env.num_envs": "64", "train.horizon": "32"}
    config = load("puffer/squared", options={**options, "train.minibatch_size": "2048"})
    alone, together = (plan(config, 1, is_native=True, world_size=count) for count in (1, 2))
    assert (alone.epochs, together.epochs) == (32, 16)
    assert alone.steps == together.steps == 65536
    assert together.batch_size == alone.batch_size
    assert "2 processes x 64 agents" in together.summary
    assert "processes" not in alone.summary


def test_proposed_counts_shrink_with_processes():
    config = load("puffer/squared", options={"train.total_timesteps": "65536"})
    assert plan(config, 1, is_native=True, world_size=4).num_envs * 4 <= plan(config, 1, is_native=True).num_envs


def test_x01_no_collective_sits_in_a_branch_for_one_rank():
    files = [*(PACKAGE / "rl").glob("*.py"), *(PACKAGE / "training").glob("*.py")]
    assert not [(file.name, line) for file in files for line in lonely_collectives(file.read_text())]


def test_the_search_for_lonely_collectives_finds_one():
    assert lonely_collectives("if ranks.is_first:\n    ranks.sum_(x)\n") == [2]
    assert lonely_collectives("if self.rank == 0:\n    pass\nelse:\n    self.ranks.gather(x)\n") == [4]


def lonely_collectives(text):
    """Return the lines of collectives inside ``if ... is_first`` and the like."""
    branches = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If) and "rank" in ast.dump(node.test)
    ]
    branches = [node for node in branches if {"is_first", "rank"} & set(names(node.test))]
    calls = [call for node in branches for part in node.body + node.orelse for call in ast.walk(part)]
    return sorted({call.lineno for call in calls if isinstance(call, ast.Call) and is_collective(call.func)})


def is_collective(function):
    return isinstance(function, ast.Attribute) and function.attr in COLLECTIVES and "rank" in ast.dump(function.value)


def names(node):
    return [part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)]


@pytest.fixture
def minibatch():
    """Advantages, (3, 8), 0 where not live, and what is live: fewer steps in the second half than in the first."""
    live = torch.ones(3, 8, dtype=torch.bool)
    live[1:, 5:] = False
    return (torch.randn(3, 8, generator=torch.Generator().manual_seed(1)) + 2.0) * live, live


def test_advantages_of_two_ranks_are_normalised_as_one_minibatch(minibatch):
    advantages, live = minibatch

    def work(ranks):
        own = slice(4 * ranks.rank, 4 * ranks.rank + 4)
        return normalize(advantages[:, own], live[:, own], ranks)

    torch.testing.assert_close(torch.cat(in_threads(2, work), 1), normalize(advantages, live), atol=1e-6, rtol=1e-6)


def test_the_summed_gradient_is_that_of_one_process(minibatch):
    advantages, live = minibatch
    inputs = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(2))
    actions = torch.arange(24).view(3, 8) % 3
    weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
    layout = ActionLayout.from_space(spaces.Discrete(3), "gaussian")

    def work(ranks):
        size = 8 // ranks.world_size
        own = slice(size * ranks.rank, size * ranks.rank + size)
        leaf = weight.clone().requires_grad_()
        outputs = (inputs[:, own] @ leaf).flatten(0, 1)
        here, scaled = live[:, own], normalize(advantages[:, own], live[:, own], ranks)
        zeros = torch.zeros(here.numel())
        targets = Targets(
            actions=actions[:, own].flatten(),
            logprobs=zeros - 1.0,
            values=zeros,
            advantages=scaled.flatten(),
            returns=advantages[:, own].flatten(),
            action_mask=None,
            live=here.flatten(),
            count=ranks.total(float(here.sum())),
        )
        loss, _, _ = ppo_loss(outputs[:, :3], outputs[:, 3], None, layout, targets, Coefficients(0.2, 0.2, 0.5, 0.01))
        return ranks.sum_(torch.autograd.grad(loss, leaf)[0])

    alone, (first, second) = work(Ranks()), in_threads(2, work)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, alone, atol=1e-6, rtol=1e-6)


def test_observations_of_two_ranks_are_counted_as_one():
    numbers, alone = torch.randn(20, 3, generator=torch.Generator().manual_seed(2)) * 3.0 + 1.0, Normalizer((3,))
    alone.update(numbers)

    def work(ranks):
        own = Normalizer((3,))
        count_over(ranks, own, numbers[15 * ranks.rank : 15 * ranks.rank + 15])
        return own

    for found in in_threads(2, work):
        assert found.count == 20
        torch.testing.assert_close(found.mean, alone.mean)
        torch.testing.assert_close(found.var, alone.var)


def test_means_weigh_the_episodes_of_all_ranks():
    def work(ranks):
        environment, losses = Means(), Means()
        environment.add({"score": float(ranks.rank)}, 1.0 + 2.0 * ranks.rank)
        losses.add({"value": 1.0 + ranks.rank}, 1.0)
        environment, losses, episodes = over(ranks, environment, losses, 1.0 + 2.0 * ranks.rank)
        return environment.take(""), losses.take(""), episodes

    assert in_threads(2, work) == [({"score": 0.75}, {"value": 1.5}, 4.0)] * 2


def test_x02_ranks_have_equal_weights_and_different_experience(tmp_path):
    codes, errors = end(start(2, tmp_path))
    assert codes == [0, 0], errors
    first, second = reports(tmp_path, 2)
    assert first["weights"] == second["weights"]
    assert len(set(first["weights"])) == 6
    assert not set(first["observations"]) & set(second["observations"])
    assert not set(first["actions"]) & set(second["actions"])
    assert first["global_step"] == second["global_step"] == 6 * 2 * 16 * 8
    assert first["result"]["steps"] == 1536
    assert second["result"] == {}


@pytest.mark.slow
def test_a_run_of_two_ranks_goes_on_bit_for_bit(tmp_path):
    (tmp_path / "whole").mkdir()
    assert end(start(2, tmp_path / "whole"))[0] == [0, 0]
    first, second = reports(tmp_path / "whole", 2)
    (tmp_path / "halves").mkdir()
    assert end(start(2, tmp_path / "halves", stop_at=768))[0] == [0, 0]
    codes, errors = end(start(2, tmp_path / "halves", resume="latest"))
    assert codes == [0, 0], errors
    for rank, report in enumerate(reports(tmp_path / "halves", 2)):
        assert report["weights"] == first["weights"][3:]
        assert report["actions"] == (first, second)[rank]["actions"][3:]
        assert report["observations"] == (first, second)[rank]["observations"][3 * 16 :]


@pytest.mark.parametrize(
    ("misdeed", "message"),
    [
        ("raise", "rank 1 failed: .*on purpose"),
        pytest.param("kill", "is gone|failed", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_fails_ends_all(tmp_path, misdeed, message):
    began = time.monotonic()
    ranks = start(2, tmp_path, misdeed={"1": misdeed})
    codes, errors = end(ranks)
    assert all(codes)
    assert time.monotonic() - began < 60
    assert re.search(message, errors[0]), errors[0]


@pytest.mark.slow
def test_x01_three_ranks_of_unequal_speed_end_with_an_evaluation(tmp_path):
    codes, errors = end(start(3, tmp_path, verb="run", misdeed={"1": "slow"}, options={"eval_episodes": "5"}))
    assert codes == [0, 0, 0], errors
    found = reports(tmp_path, 3)
    assert found[0]["weights"] == found[1]["weights"] == found[2]["weights"]
    assert found[0]["result"]["episodes"] >= 5
    assert found[2]["result"] == {}


@pytest.mark.slow
def test_another_number_of_ranks_goes_on_with_new_environments(tmp_path):
    assert end(start(2, tmp_path, stop_at=768))[0] == [0, 0]
    codes, errors = end(start(3, tmp_path, resume="latest"))
    assert codes == [0, 0, 0], errors
    assert "2 processes saved it, 3 go on" in errors[0]
    found = reports(tmp_path, 3)
    assert found[0]["weights"] == found[1]["weights"] == found[2]["weights"]
    assert found[0]["weights"]
    assert not set(found[0]["actions"]) & set(found[1]["actions"])


@pytest.mark.slow
def test_one_command_starts_its_ranks_and_ctrl_c_saves_once(tmp_path):
    words = "--train.processes 2 --train.total-timesteps 100000000 --env.num-envs 16 --train.horizon 8"
    command = [sys.executable, "-m", "puffer_core", "train", "puffer/squared", *words.split()]
    command += ["--train.minibatch-size", "64", "--runs-dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("**/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert len(list(tmp_path.glob("**/checkpoints/*/state.json"))) == 1
    assert len(list(tmp_path.glob("**/checkpoints/*/rank1.safetensors"))) == 1
