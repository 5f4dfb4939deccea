"""Connect four against brute force: lines, legal columns, replies of the opponents, and a player that beats them."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from puffer_core.errors import OptionError
from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve
from puffer_core.testing import random_actions

TABLE = "puffer_ocean._native:connect4"
COLUMNS, ROWS = 7, 6
SCORE, PERF, RETURN, LENGTH, ILLEGAL = range(5)
LINES = [
    tuple((c + k * dc, r + k * dr) for k in range(4))
    for c in range(COLUMNS)
    for r in range(ROWS)
    for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1))
    if 0 <= c + 3 * dc < COLUMNS and 0 <= r + 3 * dr < ROWS
]
LINES_THROUGH = defaultdict(list)
for _line in LINES:
    for _cell in _line:
        LINES_THROUGH[_cell].append(_line)


class Board:
    """Columns of stones, 1 and -1; nothing clever."""

    def __init__(self, columns=None):
        self.columns = columns or [[] for _ in range(COLUMNS)]

    @classmethod
    def seen(cls, row):
        """Return the board that an observation shows, after checking that no stone floats."""
        columns = []
        for column in row.reshape(COLUMNS, ROWS):
            stones = [int(x) for x in column if x]
            assert list(column) == stones + [0] * (ROWS - len(stones))
            columns.append(stones)
        return cls(columns)

    def legal(self):
        return [c for c in range(COLUMNS) if len(self.columns[c]) < ROWS]

    def after(self, column, side):
        columns = [list(stones) for stones in self.columns]
        columns[column].append(side)
        return Board(columns)

    def at(self, cell):
        column, row = cell
        return self.columns[column][row] if row < len(self.columns[column]) else 0

    def wins_with(self, column):
        """Return whether the top stone of ``column`` is part of four in a line."""
        cell = column, len(self.columns[column]) - 1
        side = self.at(cell)
        return any(all(self.at(other) == side for other in line) for line in LINES_THROUGH[cell])

    def winner(self):
        for line in LINES:
            stones = {self.at(cell) for cell in line}
            if len(stones) == 1 and stones != {0}:
                return stones.pop()
        return 0

    def values(self, side, left, combine):
        """Return {column: value}, nothing pruned: 10^left for a win with ``left`` stones to look at, its own included.

        ``combine`` makes one value of all the columns of a position: `sum` for opponent 2, `max` for opponent 3.
        """
        values = {}
        for column in self.legal():
            child = self.after(column, side)
            if child.wins_with(column):
                values[column] = 10**left
            elif left == 1 or not child.legal():
                values[column] = 0
            else:
                values[column] = -combine(child.values(-side, left - 1, combine).values())
        return values

    def best(self, side, depth, combine=max):
        """Return the columns that win, else those of the largest value, ``depth`` stones after the own one."""
        values = self.values(side, depth + 1, combine)
        wins = {column for column in values if self.after(column, side).wins_with(column)}
        return wins or {column for column, value in values.items() if value == max(values.values())}


def _open(num_envs=64, **params):
    env = NativeEnv(resolve(TABLE), params, num_envs=num_envs, seed=1)
    env.reset(seed=1)
    return env


def _reply(board, after):
    """Return the column of the one stone that ``after`` has more."""
    grown = [c for c in range(COLUMNS) if len(after.columns[c]) > len(board.columns[c])]
    assert len(grown) == 1
    return grown[0]


def _rounds(env, steps, seed=1):
    """Play legal columns at random; yield (board after the agent's stone, board after the reply) of each row."""
    for step in range(steps):
        before = [Board.seen(row) for row in env.observations]
        actions = random_actions(env, seed, step, env.action_mask)
        env.step(actions)
        for i, board in enumerate(before):
            played = board.after(actions[i], 1)
            shown = env.final_observations[i] if env.terminals[i] else env.observations[i]
            after = Board.seen(shown)
            if played.wins_with(actions[i]) or not played.legal():
                assert after.columns == played.columns
            else:
                yield played, after


@pytest.mark.parametrize("opponent", [0, 1, 2, 3])
@pytest.mark.parametrize("agent_first", [0, 1, 2])
def test_games_follow_the_rules(opponent, agent_first):
    ends = Counter()
    with _open(opponent=opponent, agent_first=agent_first) as env:
        lengths = np.zeros(env.num_agents, int)
        for step in range(60):
            env.step(random_actions(env, 2, step, env.action_mask))
            lengths += 1
            assert lengths.max() <= 21
            for i in range(env.num_agents):
                board = Board.seen(env.observations[i])
                stones = Counter(stone for column in board.columns for stone in column)
                assert stones[-1] - stones[1] in {0: (1,), 1: (0,), 2: (0, 1)}[agent_first]
                assert np.array_equal(np.flatnonzero(env.action_mask[i]), board.legal())
                assert board.legal()
                assert board.winner() == 0
                if not env.terminals[i]:
                    assert env.rewards[i] == 0
                    continue
                last = Board.seen(env.final_observations[i])
                result = last.winner()
                assert result != 0 or not last.legal()
                assert env.rewards[i] == result
                assert np.array_equal(env.log[i], [result, (result + 1) / 2, result, lengths[i], 0])
                ends[result] += 1
            assert not env.truncations.any()
            lengths[env.terminals] = 0
    assert ends[-1] > 0
    assert ends[1] > 0 or opponent >= 2


@pytest.mark.parametrize(("opponent", "combine"), [(2, sum), (3, max)])
@pytest.mark.parametrize(("depth", "steps"), [(1, 60), (2, 20), (3, 4), (4, 1)])
def test_searching_opponents_reply_with_one_of_the_best_columns(opponent, combine, depth, steps):
    tried = decided = 0
    with _open(num_envs=16 if depth < 4 else 4, opponent=opponent, depth=depth) as env:
        for board, after in _rounds(env, steps):
            best = board.best(-1, depth, combine)
            assert _reply(board, after) in best, board.columns
            tried += 1
            decided += len(best) < len(board.legal())
    assert decided > 0 or depth == 4
    assert tried >= 4


def _replies(env, columns):
    """Play the same columns in every row; return {position: Counter of the replies to it}, and the boards."""
    replies, boards = defaultdict(Counter), {}
    for column in columns:
        before = env.observations.astype(np.int8)
        legal = env.action_mask[:, column] == 1
        env.step(np.where(legal, column, 0).astype(np.int32))
        kept = legal & ~env.terminals
        for old, new in zip(before[kept], env.observations[kept], strict=True):
            played = Board.seen(old).after(column, 1)
            boards[str(played.columns)] = played
            replies[str(played.columns)][_reply(played, Board.seen(new))] += 1
    return replies, boards


def test_negamax_stops_an_open_pair_from_depth_3_on():
    pair = Board([[], [], [1], [1], [], [], [-1]])
    assert pair.best(-1, 2) == set(range(7))
    assert pair.best(-1, 3) == {1, 4}
    seen = {}
    for depth in (2, 3):
        with _open(num_envs=2048, opponent=3, depth=depth) as env:
            replies, _ = _replies(env, (3, 2))
            seen[depth] = set(replies[str(pair.columns)])
    assert seen == {2: set(range(7)), 3: {1, 4}}


def test_depth_of_the_opponent_that_prunes_nothing_is_limited():
    with pytest.raises(OptionError, match="opponent=2 looks at most 6 stones ahead, not depth=7"):
        _open(depth=7)
    with _open(opponent=3, depth=8) as env, pytest.raises(OptionError, match="at most 6 stones"):
        env.set_params(opponent=2)


@pytest.mark.parametrize("masked", [False, True])
def test_a_random_policy_wins_as_often_as_published(masked):
    """0.0004 of the games, of about 7 moves; more if it does not lose by full columns."""
    games = wins = moves = 0
    with _open(num_envs=1024) as env:
        for step in range(400):
            env.step(random_actions(env, 6, step, env.action_mask if masked else None))
            ended = env.terminals
            games, wins = games + ended.sum(), wins + (env.rewards == 1).sum()
            moves += env.log[ended, LENGTH].sum()
    assert abs(wins / games - (0.0017 if masked else 0.0004)) < 5 * (0.0017 / games) ** 0.5
    assert 6.8 < moves / games < 7.2


ANSWERS = {1: (1, max), 2: (3, sum), 3: (3, max)}
"""Depth and combination of the values that opponents 1 to 3 answer by."""


@pytest.mark.parametrize("opponent", [0, 1, 2, 3])
def test_ties_are_broken_uniformly(opponent):
    """Of each position reached often, every best column is drawn as often as any other (5 sigma)."""
    with _open(num_envs=4096, opponent=opponent) as env:
        replies, boards = _replies(env, (3, 2, 4))
    tested = 0
    for text, counts in replies.items():
        total, board = counts.total(), boards[text]
        if total < 400:
            continue
        best = board.best(-1, *ANSWERS[opponent]) if opponent else set(board.legal())
        assert set(counts) == best, text
        share = 1 / len(best)
        sigma = (total * share * (1 - share)) ** 0.5
        assert all(abs(counts[c] - total * share) <= 5 * sigma for c in best), (text, counts)
        tested += 1
    assert tested >= 5


def test_greedy_wins_or_blocks_or_plays_at_random():
    kinds = Counter()
    with _open(opponent=1) as env:
        for board, after in _rounds(env, 60):
            reply = _reply(board, after)
            wins = {c for c in board.legal() if board.after(c, -1).wins_with(c)}
            blocks = {c for c in board.legal() if board.after(c, 1).wins_with(c)}
            assert reply in (wins or blocks or board.legal())
            kinds["win" if wins else "block" if blocks else "other"] += 1
    assert min(kinds.values()) > 20
    assert len(kinds) == 3


def _fill(env, column):
    """Drop stones into one column until it is full in some row; return those rows."""
    for _ in range(6):
        env.step(np.where(env.action_mask[:, column] == 1, column, 0).astype(np.int32))
        full = (env.action_mask[:, column] == 0) & (env.action_mask[:, 0] == 1)
        if full.sum() > 4:
            return full
    raise AssertionError("no column filled up")


def test_a_full_column_loses():
    with _open(num_envs=512, opponent=0) as env:
        full = _fill(env, 6)
        before = env.observations.copy()
        env.step(np.full(512, 6, np.int32))
        assert env.terminals[full].all()
        assert (env.rewards[full] == -1).all()
        assert (env.log[full, ILLEGAL] == 1).all()
        assert (env.log[full, PERF] == 0).all()
        assert np.array_equal(env.final_observations[full], before[full])


def test_a_full_column_does_nothing_where_it_is_no_loss():
    with _open(num_envs=512, opponent=0, illegal_is_loss=False) as env:
        full = _fill(env, 6)
        before, masks = env.observations.copy(), env.action_mask.copy()
        env.step(np.full(512, 6, np.int32))
        assert not env.terminals[full].any()
        assert not env.rewards[full].any()
        assert np.array_equal(env.observations[full], before[full])
        assert np.array_equal(env.action_mask[full], masks[full])


@pytest.mark.parametrize("action", [-1, 7, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_is_column_0(action):
    with _open(num_envs=1, opponent=0) as env, _open(num_envs=1, opponent=0) as other:
        env.step(np.array([action], np.int32))
        other.step(np.array([0], np.int32))
        assert np.array_equal(env.observations, other.observations)
        for step in range(40):
            actions = random_actions(env, 1, step, env.action_mask)
            env.step(actions)
            if env.terminals[0]:
                break
        assert env.log[0, ILLEGAL] == 1


@pytest.mark.parametrize(("agent_first", "share"), [(0, 1.0), (1, 0.0), (2, 0.5)])
def test_who_begins(agent_first, share):
    with _open(num_envs=1024, agent_first=agent_first) as env:
        opened = (env.observations == -1).sum(axis=1)
        assert set(opened) <= {0, 1}
        assert not (env.observations == 1).any()
        assert abs(opened.mean() - share) < 0.08


def test_a_full_board_is_a_draw():
    draws = 0
    with _open(num_envs=512, opponent=0) as env:
        for step in range(200):
            env.step(random_actions(env, 3, step, env.action_mask))
            drawn = env.terminals & (env.rewards == 0)
            for row in env.final_observations[drawn]:
                assert (row != 0).all()
                assert Board.seen(row).winner() == 0
            assert (env.log[drawn, PERF] == 0.5).all()
            assert (env.log[drawn, LENGTH] == 21).all()
            draws += drawn.sum()
    assert draws > 0


@pytest.mark.parametrize("agent_first", [0, 1, 2])
def test_self_play_shows_both_sides_their_own_view(agent_first):
    games = wins = 0
    with _open(num_envs=64, self_play=True, agent_first=agent_first) as env:
        assert env.num_agents == 128
        movers = (env.action_mask.sum(axis=1) > 1).reshape(64, 2).argmax(axis=1)
        assert set(movers) == {0: {1}, 1: {0}, 2: {0, 1}}[agent_first]
        for step in range(120):
            pairs = env.observations.reshape(64, 2, 42)
            assert np.array_equal(pairs[:, 0], -pairs[:, 1])
            boards = [Board.seen(row) for row in pairs[np.arange(64), movers]]
            masks = env.action_mask.reshape(64, 2, 7)
            assert (masks[np.arange(64), 1 - movers] == [1, 0, 0, 0, 0, 0, 0]).all()
            for board, mask in zip(boards, masks[np.arange(64), movers], strict=True):
                assert np.array_equal(np.flatnonzero(mask), board.legal())
            actions = random_actions(env, 4, step, env.action_mask).reshape(64, 2)
            actions[np.arange(64), 1 - movers] = (3, -1, 2**31 - 1)[step % 3]  # ignored
            chosen = actions[np.arange(64), movers]
            env.step(actions.reshape(-1))
            rewards, terminals = env.rewards.reshape(64, 2), env.terminals.reshape(64, 2)
            assert np.array_equal(rewards[:, 0], -rewards[:, 1])
            assert np.array_equal(terminals[:, 0], terminals[:, 1])
            for i, board in enumerate(boards):
                after = board.after(chosen[i], 1)
                won, over = after.wins_with(chosen[i]), not after.legal()
                assert terminals[i, 0] == (won or over)
                assert rewards[i, movers[i]] == won
                if not terminals[i, 0]:
                    assert Board.seen(env.observations[2 * i + movers[i]]).columns == after.columns
                games, wins = games + terminals[i, 0], wins + won
            ended = terminals.reshape(-1)
            assert np.array_equal(env.logged, ended)
            assert np.array_equal(env.log[ended, SCORE], env.rewards[ended])
            assert not env.log[ended, ILLEGAL].any()
            movers = (env.action_mask.reshape(64, 2, 7).sum(axis=2) > 1).argmax(axis=1)
    assert games > 100
    assert wins > 90


def test_self_play_gives_the_game_to_the_other_side_after_a_full_column():
    with _open(num_envs=1, self_play=True) as env:
        for _ in range(6):
            env.step(np.zeros(2, np.int32))
            assert not env.terminals.any()
        env.step(np.zeros(2, np.int32))
        assert env.terminals.all()
        assert list(env.rewards) == [-1, 1]
        assert list(env.log[:, ILLEGAL]) == [1, 0]


def test_live_parameters_are_adopted_at_the_next_game():
    with _open(num_envs=64, opponent=0) as env:
        env.set_params(agent_first=0)
        fresh = np.zeros(64, bool)
        for step in range(60):
            env.step(random_actions(env, 5, step, env.action_mask))
            fresh |= env.terminals
            more = (env.observations == -1).sum(axis=1) - (env.observations == 1).sum(axis=1)
            assert np.array_equal(more, fresh)
        assert fresh.all()


def test_a_solver_beats_the_random_opponent():
    """Takes wins, blocks losses, looks three stones ahead and prefers the middle (P17)."""
    results = []
    with _open(num_envs=24, opponent=0) as env:
        while len(results) < 100:
            actions = []
            for row in env.observations:
                best = Board.seen(row).best(1, 2)
                actions.append(min(best, key=lambda column: abs(column - 3)))
            env.step(np.array(actions, np.int32))
            results += list(env.rewards[env.terminals])
    assert np.mean(np.array(results) > 0) >= 0.97


def test_ansi_shows_the_board_from_the_top():
    with _open(num_envs=1, opponent=0) as env:
        env.step(np.array([4], np.int32))
        lines = env.render(0, "ansi").splitlines()
        assert lines[6] == "1234567"
        assert len(lines) == 7
        text = "".join(lines[:6])
        assert text.count("X") == text.count("O") == 1
        assert lines[5][4] == "X"
