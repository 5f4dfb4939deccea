from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Forgetful, Guess, ScriptedVector, make_trainer, run
from gymnasium import spaces
from safetensors.torch import load_file, save_file

from puffer_core.config.schema import PolicyConfig
from puffer_core.errors import RunError, ShapeError, UsageError
from puffer_core.policies import make_policy
from puffer_core.rl import checkpoint
from puffer_core.rl.agent import load
from puffer_core.rl.checkpoint import Checkpoint
from puffer_core.rl.resume import ENVIRONMENTS
from puffer_core.rl.streams import derive, environment_seed
from puffer_core.rl.trainer import PuffeRL
from puffer_core.vector import make

TIMED = ("seconds", "steps_per_second", "perf/")


def guessing(kind: type[Guess] = Guess, **params: Any) -> Any:
    return make(lambda buf=None: kind(buf, **params), 16, "serial")


def squared() -> Any:
    pytest.importorskip("puffer_ocean")
    return make("ocean/squared", 16, "native", seed=42)


def whole(trainer: PuffeRL) -> dict[str, torch.Tensor]:
    """Everything that the future depends on."""
    tensors = {f"w.{name}": p.detach().clone() for name, p in trainer.policy.named_parameters()}
    tensors |= {f"o.{name}": array.clone() for name, array in trainer.optimizer.state_dict().items()}
    tensors |= {f"c.{name}": array.clone() for name, array in trainer.rollout.carry().items()}
    return tensors | {"a": trainer.rollout.generator.get_state(), "r": trainer.replay.generator.get_state()}


def timeless(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: v for name, v in row.items() if not name.startswith(TIMED)} for row in rows]


@pytest.mark.parametrize("open_", [guessing, lambda: guessing(truncate=True), squared], ids=["serial", "cut", "native"])
@pytest.mark.parametrize("optimizer", ["muon", "adam"])
def test_k01_resumed_run_equals_the_uninterrupted_one(open_: Any, optimizer: str, tmp_path: Path) -> None:
    options = {"optimizer": optimizer, "epochs": 20, "anneal_ent_coef": True, "replay_ratio": 2.0}
    uninterrupted = make_trainer(open_(), **options)
    expected = run(uninterrupted, 20)
    first = make_trainer(open_(), **options)
    run(first, 9)
    first.evaluate()
    first.train()
    first.save(tmp_path / "checkpoint")
    first.close()
    second = make_trainer(open_(), **options)
    assert second.load(tmp_path / "checkpoint") == ()
    assert (second.epoch, second.global_step, second.gradient_steps) == (10, first.global_step, first.gradient_steps)
    rest = [second.mean_and_log(), *run(second, 10)]
    assert timeless(rest[1:]) == timeless(expected[10:])
    assert timeless(rest[:1]) == timeless(expected[9:10])
    found, wanted = whole(second), whole(uninterrupted)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_recurrent_state_and_absent_agents_are_carried_over(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scripts = {
        "observations": rng.normal(size=(99, 8, 3)).astype(np.float32),
        "terminals": rng.random((99, 8)) < 0.1,
        "masks": rng.random((99, 8)) > 0.2,
    }
    full, first, second = (make_trainer(ScriptedVector(**scripts)) for _ in range(3))
    run(full, 6)
    run(first, 3)
    first.save(tmp_path / "c")
    second.load(tmp_path / "c")
    run(second, 3)
    assert all(torch.equal(whole(full)[name], array) for name, array in whole(second).items())
    assert full.global_step == second.global_step


def test_weights_alone_are_not_a_resumed_run(tmp_path: Path) -> None:
    first, second, cold = (make_trainer(guessing()) for _ in range(3))
    run(first, 5)
    first.save(tmp_path / "c")
    second.load(tmp_path / "c")
    checkpoint.load_model(cold.policy, checkpoint.read(tmp_path / "c").model, tmp_path)
    for trainer in (second, cold):
        run(trainer, 1)
    assert not torch.equal(second.policy.encoder.weight, cold.policy.encoder.weight)


def test_environments_that_cannot_be_saved_begin_anew_and_say_so(tmp_path: Path) -> None:
    first, second = make_trainer(guessing(Forgetful)), make_trainer(guessing(Forgetful))
    run(first, 3)
    first.save(tmp_path / "c")
    assert second.load(tmp_path / "c") == (ENVIRONMENTS,)
    assert second.epoch == 3
    assert not torch.equal(second.rollout.carry()["observations"], first.rollout.carry()["observations"])
    run(second, 1)
    assert second.global_step == 4 * 128


def test_a_state_that_does_not_fit_the_environments_is_named(tmp_path: Path) -> None:
    first, second = make_trainer(squared()), make_trainer(squared())
    run(first, 2)
    first.save(tmp_path / "c")
    arrays = load_file(tmp_path / "c" / "arrays.safetensors")
    save_file({**arrays, "env.env": arrays["env.env"][:-1]}, tmp_path / "c" / "arrays.safetensors")
    seal(tmp_path / "c")
    (lost,) = second.load(tmp_path / "c")
    assert lost.startswith("the environments: squared: this is no saved state")
    assert lost.endswith("they begin anew")
    run(second, 1)
    assert second.epoch == 3


class OldSeeding(Forgetful):
    """Seeds numpy's global generator, which takes 32 bits."""

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        np.random.RandomState(None if seed is None else seed + index)
        return super().reset(seed, index)


def test_seeds_of_environments_fit_old_generators(tmp_path: Path) -> None:
    first, second = (make_trainer(guessing(OldSeeding), seed=2**62 + 1) for _ in range(2))
    run(first, 1)
    first.save(tmp_path / "c")
    assert second.load(tmp_path / "c") == (ENVIRONMENTS,)
    seeds = {environment_seed(derive(seed, "restart", epoch)) for seed in range(20) for epoch in range(20)}
    assert len(seeds) == 400
    assert max(seeds) < 2**31
    assert environment_seed(42) == 42


def test_checkpoint_before_the_first_rollout_is_a_start(tmp_path: Path) -> None:
    first, second = make_trainer(guessing()), make_trainer(guessing())
    first.save(tmp_path / "c")
    assert second.load(tmp_path / "c") == ()
    assert timeless(run(second, 2)) == timeless(run(first, 2))


def test_a_rollout_that_was_not_learnt_from_is_not_saved(tmp_path: Path) -> None:
    trainer = make_trainer(guessing())
    trainer.evaluate()
    with pytest.raises(UsageError, match="between evaluate"):
        trainer.save(tmp_path / "c")


def saved(path: Path, **options: Any) -> PuffeRL:
    trainer = make_trainer(guessing(), **options)
    run(trainer, 1)
    trainer.save(path)
    return trainer


def test_checkpoint_holds_plain_names_and_json_only(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    assert sorted(file.name for file in (tmp_path / "c").iterdir()) == [
        "arrays.safetensors",
        "model.safetensors",
        "state.json",
    ]
    assert sorted(load_file(tmp_path / "c" / "model.safetensors")) == [
        "decoder.bias",
        "decoder.weight",
        "encoder.bias",
        "encoder.weight",
        "layers.0.weight",
    ]
    state = json.loads((tmp_path / "c" / "state.json").read_text())
    assert (state["epoch"], state["global_step"], state["optimizer"]) == (1, 128, {"name": "muon", "steps": 4})
    assert state["policy"]["core"] == "mingru"


@pytest.mark.parametrize("name", ["model.safetensors", "arrays.safetensors", "state.json"])
def test_missing_or_cut_files_are_refused(name: str, tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")
    data = (tmp_path / "c" / name).read_bytes()
    (tmp_path / "c" / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(RunError, match="is damaged"):
        trainer.load(tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    with pytest.raises(RunError, match=f"{name} is missing"):
        trainer.load(tmp_path / "c")


def edit(path: Path, change: Callable[[Any], object]) -> None:
    state = json.loads((path / "state.json").read_text())
    change(state)
    (path / "state.json").write_text(json.dumps(state))


@pytest.mark.parametrize("key", checkpoint.CONTENT)
def test_a_state_that_lacks_something_is_refused(key: str, tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")

    def drop(state: Any) -> None:
        *outer, last = key.split(".")
        del (state[outer[0]] if outer else state)[last]

    edit(tmp_path / "c", drop)
    for reader in (trainer.load, load):
        with pytest.raises(RunError, match=rf"is damaged: `{key}` in state\.json is None"):
            reader(tmp_path / "c")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({key: -1}, f"`{key}` in state.json is -1")
            for key in ("global_step", "skipped_updates", "episodes", "seed")
        ),
        ({"episodes": float("nan")}, "`episodes` in state.json is nan"),
        ({"gradient_steps": True}, "`gradient_steps` in state.json is True"),
        ({"epoch": 10**6}, "`epoch` in state.json is 1000000 of"),
        ({"epoch": 0}, "`global_step` in state.json is .* before epoch 1"),
        ({"is_started": False}, "`is_started` in state.json does not fit `epoch` 1"),
        ({"horizon": 3}, "`horizon` is 3 there"),
        ({"total_epochs": 10**6}, "`total_epochs` is 1000000 there"),
        ({"action_space": {"kind": "discrete", "n": 9, "start": 0}}, "`action_space` is .* there"),
    ],
)
def test_a_state_that_can_not_be_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")
    edit(tmp_path / "c", lambda state: state.update(changes))
    with pytest.raises(RunError, match=message):
        trainer.load(tmp_path / "c")


def seal(path: Path) -> None:
    """Write the checksums of what is there, as if it had been saved so."""
    names = ("model.safetensors", "arrays.safetensors")
    sums = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names}
    edit(path, lambda state: state.update(sha256=sums))


def lose(path: Path, name: str) -> None:
    arrays = load_file(path / "arrays.safetensors")
    save_file({key: array for key, array in arrays.items() if key != name}, path / "arrays.safetensors")
    seal(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: lose(path, "optimizer.momentum.encoder.weight"), "does not fit this network and optimiser"),
        (lambda path: lose(path, "carry.state"), "rows of the checkpoint"),
        (lambda path: lose(path, "generator.replay"), "is damaged: 'replay'"),
        (lambda path: edit(path, lambda state: state["means"]["losses"].update(kl=[1.0])), "is damaged"),
    ],
)
def test_a_refused_checkpoint_leaves_the_trainer_as_it_was(damage: Any, message: str, tmp_path: Path) -> None:
    saved(tmp_path / "c")
    damage(tmp_path / "c")
    trainer = make_trainer(guessing())
    run(trainer, 2)
    before = whole(trainer)
    with pytest.raises(RunError, match=message):
        trainer.load(tmp_path / "c")
    assert all(torch.equal(whole(trainer)[name], array) for name, array in before.items())
    assert trainer.epoch == 2


def test_options_that_the_policy_does_not_have_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    edit(tmp_path / "c", lambda state: state["policy_options"].update(depth="3"))
    with pytest.raises(RunError, match="`mlp`, as it is installed, has no option `depth`"):
        load(tmp_path / "c")


def test_pickles_are_refused(tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")
    torch.save({"x": torch.zeros(1)}, tmp_path / "c" / "model.safetensors")
    seal(tmp_path / "c")
    with pytest.raises(RunError, match="is damaged"):
        trainer.load(tmp_path / "c")


@pytest.mark.parametrize(
    ("number", "message", "hint"),
    [(99, "has format 99, this version reads up to 2", "upgrade"), (None, "`format` in", None), ("2", "is '2'", None)],
)
def test_other_formats_are_refused(number: Any, message: str, hint: str | None, tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")
    edit(tmp_path / "c", lambda state: state.update(format=number))
    with pytest.raises(RunError, match=message) as caught:
        trainer.load(tmp_path / "c")
    assert hint is None or hint in str(caught.value.hint)


@pytest.mark.parametrize("name", ["model.safetensors", "arrays.safetensors"])
def test_a_changed_bit_is_found_and_the_checkpoint_before_is_named(name: str, tmp_path: Path) -> None:
    for step in ("100", "200", "300"):
        trainer = saved(tmp_path / step)
    data = bytearray((tmp_path / "200" / name).read_bytes())
    data[-5] ^= 1
    (tmp_path / "200" / name).write_bytes(data)
    for reader in (trainer.load, load):
        with pytest.raises(RunError, match=f"200 is damaged: {name} does not have the checksum") as caught:
            reader(tmp_path / "200")
        assert f"--resume {tmp_path / '100'} " in str(caught.value.hint)


def test_a_policy_and_an_environment_that_draw_from_global_generators_go_on(tmp_path: Path) -> None:
    def drawn() -> list[float]:
        return [float(torch.rand(1)), float(np.random.normal()), random.gauss(0, 1)]

    np.random.normal(), random.gauss(0, 1)
    trainer = saved(tmp_path / "c")
    expected = drawn()
    drawn()
    assert trainer.load(tmp_path / "c") == ()
    assert drawn() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy_hidden_size": 8}, r"`decoder\.weight` is \(3, 16\) there, \(3, 8\) here"),
        ({"policy_num_layers": 2}, r"`layers\.1\.weight` is missing there"),
        ({"optimizer": "adam"}, "trained with muon, not with train.optimizer=adam"),
    ],
)
def test_checkpoint_of_another_network_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path / "c")
    with pytest.raises(RunError, match=message):
        make_trainer(guessing(), **options).load(tmp_path / "c")


def test_checkpoint_of_other_rows_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    other = make_trainer(make(lambda buf=None: Guess(buf), 8, "serial"), minibatch_size=32)
    with pytest.raises((RunError, ValueError), match="env"):
        other.load(tmp_path / "c")


def test_extra_and_missing_weights_are_refused(tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")
    model = load_file(tmp_path / "c" / "model.safetensors")
    save_file({**model, "extra.weight": torch.zeros(2)}, tmp_path / "c" / "model.safetensors")
    seal(tmp_path / "c")
    with pytest.raises(RunError, match=r"`extra\.weight` is \(2,\) there, missing here"):
        trainer.load(tmp_path / "c")


def test_wrapped_policies_are_saved_under_plain_names() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    policy = make_policy(PolicyConfig(hidden_size=8), space, spaces.Discrete(2), torch.Generator())
    compiled, inner = torch.nn.Module(), torch.nn.Module()
    compiled._orig_mod = policy  # what torch.compile makes
    inner.module = policy
    assert checkpoint.plain(compiled) is policy
    assert all(name.startswith("module.") for name in checkpoint.plain(inner).state_dict())


@pytest.mark.slow
def test_k05_policies_under_ddp_and_compile_are_saved_under_plain_names() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        policy = torch.nn.Linear(2, 2)
        wrapped = torch.nn.parallel.DistributedDataParallel(policy)
        assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
        assert checkpoint.plain(wrapped) is policy
        assert checkpoint.plain(torch.compile(wrapped, backend="eager")) is policy
    finally:
        torch.distributed.destroy_process_group()


def test_failed_write_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = saved(tmp_path / "c")
    before = {file.name: file.read_bytes() for file in (tmp_path / "c").iterdir()}
    run(trainer, 1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        trainer.save(tmp_path / "c")
    assert {file.name: file.read_bytes() for file in (tmp_path / "c").iterdir()} == before
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def test_an_empty_folder_is_filled_and_left_to_whoever_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c").mkdir()
    inode = (tmp_path / "c").stat().st_ino

    def never(descriptor: int) -> None:
        raise AssertionError

    monkeypatch.setattr("os.fsync", never)
    trainer = saved(tmp_path / "c")
    assert (tmp_path / "c").stat().st_ino == inode
    assert trainer.load(tmp_path / "c") == ()


def test_saving_again_replaces_the_checkpoint_and_stale_leftovers(tmp_path: Path) -> None:
    trainer = saved(tmp_path / "c")
    shutil.copytree(tmp_path / "c", tmp_path / "c.partial")
    run(trainer, 1)
    trainer.save(tmp_path / "c")
    assert [file.name for file in tmp_path.iterdir()] == ["c"]
    assert checkpoint.read(tmp_path / "c").state["epoch"] == 2


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4),
        spaces.MultiDiscrete([2, 5]),
        spaces.Box(0, 255, (2, 3), np.uint8),
        spaces.Box(np.array([-1, -np.inf], np.float32), np.array([2, np.inf], np.float32)),
        spaces.Box(-np.inf, np.inf, (), np.float32),
    ],
)
def test_spaces_survive_json(space: Any) -> None:
    text = json.dumps(checkpoint.describe_space(space))
    assert checkpoint.restore_space(json.loads(text)) == space


def test_empty_arrays_survive(tmp_path: Path) -> None:
    saved(tmp_path / "full")
    state = checkpoint.read(tmp_path / "full").state
    checkpoint.write(tmp_path / "c", Checkpoint({}, {"carry.state": torch.zeros(0, 4, 8)}, state))
    assert checkpoint.read(tmp_path / "c").section("carry")["state"].shape == (0, 4, 8)


# -- the agent ---------------------------------------------------------------------------------------------------------


def test_agent_acts_as_the_trained_policy(tmp_path: Path) -> None:
    trainer = make_trainer(guessing(), epochs=25)
    run(trainer, 25)
    trainer.save(tmp_path / "c")
    agent = load(tmp_path / "c")
    assert (agent.step, agent.observation_space.shape) == (25 * 128, (2,))
    with guessing() as vector:
        observations, state, scores = vector.reset(3)[0], None, []
        resets = np.zeros(16, bool)
        for _ in range(50):
            actions, state = agent.act(observations, state, greedy=True, resets=resets)
            assert (actions.shape, actions.dtype) == ((16,), np.int32)
            observations, rewards, *_ = vector.step(actions)
            resets = vector.terminals.copy()
            scores.append(rewards.mean())
    assert np.mean(scores) > 0.98


def test_agent_forgets_at_resets_and_obeys_masks(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    agent = load(tmp_path / "c", seed=3)
    rows = np.zeros((4, 2), np.float32)
    _, state = agent.act(rows)
    _, went_on = agent.act(rows, state, resets=np.array([True, False, False, False]))
    assert torch.equal(went_on[:, 0], state[:, 0])
    assert not torch.equal(went_on[:, 1], state[:, 1])
    mask = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.uint8)
    for greedy in (False, True):
        assert agent.act(rows, action_mask=mask, greedy=greedy)[0].tolist() == [0, 1, 0, 1]


def test_agent_samples_by_its_own_seed(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    rows = np.zeros((64, 2), np.float32)
    first, second, other = (load(tmp_path / "c", seed=seed).act(rows)[0].tolist() for seed in (1, 1, 2))
    assert first == second != other


def test_agent_refuses_other_observations(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    with pytest.raises(ShapeError, match=r"\(4, 3\), the agent takes rows of \(2,\)"):
        load(tmp_path / "c").act(np.zeros((4, 3), np.float32))


def test_load_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not in a run directory"):
        load(tmp_path)
