// Connect four on 7 columns and 6 rows, against a scripted opponent or, with self_play, between two agents.
// A step drops one stone of the agent and one of the opponent; four in a line win, a full board is a draw.
// The rules are the game's, the interface PufferLib's (3.0 to 5.0, MIT). A step has no unit of time.
#ifndef PUFFER_OCEAN_CONNECT4_H
#define PUFFER_OCEAN_CONNECT4_H

#include <puffer/draw.h>
#include <puffer/vec.h>

#define CONNECT4_COLUMNS 7
#define CONNECT4_ROWS 6
#define CONNECT4_OBS (CONNECT4_COLUMNS * CONNECT4_ROWS)
#define CONNECT4_CELL 96        // pixels
#define CONNECT4_MAX_WEIGHED 6  // opponent 2 prunes nothing: each stone more takes about seven times as long

// A board is one bit per cell, bit = 7 * column + row, rows from the bottom. Bit 6 of each column stays empty, so a
// shift by 1, 6, 7 or 8 never carries a line over an edge. (John Tromp's layout, widely used.)
#define CONNECT4_BOTTOM UINT64_C(0x0040810204081)
#define CONNECT4_BOARD (CONNECT4_BOTTOM * 63)
#define CONNECT4_COLUMN(column) (UINT64_C(63) << (7 * (column)))

// Observation, float32 (42,): index = 6 * column + row, rows from the bottom; 1 own stone, -1 the other's, 0 empty.
// Mask, 7 bytes: 1 where the column is not full. With self_play the side that is not to move has only column 0.

enum { CONNECT4_RANDOM, CONNECT4_GREEDY, CONNECT4_WEIGHING, CONNECT4_NEGAMAX };

enum {
    CONNECT4_OPPONENT,
    CONNECT4_DEPTH,
    CONNECT4_AGENT_FIRST,
    CONNECT4_SELF_PLAY,
    CONNECT4_ILLEGAL_IS_LOSS,
    CONNECT4_NUM_PARAMS
};

static const PufferParam connect4_params[] = {
    PUFFER_P_INT("opponent", 2, 0, 3, 0, PUFFER_LIVE,
                 "0 random; 1 wins or blocks if it can; 2 weighs all lines of play; 3 expects the best play."),
    PUFFER_P_INT("depth", 3, 1, 8, 0, PUFFER_LIVE,
                 "Stones that opponents 2 and 3 look ahead after their own next one; opponent 2 at most 6."),
    PUFFER_P_INT("agent_first", 1, 0, 2, 0, PUFFER_LIVE, "Who begins: 0 the opponent, 1 the agent, 2 drawn by lot."),
    PUFFER_P_BOOL("self_play", 0, 0, "Two agents play each other; the opponent's parameters are not used."),
    PUFFER_P_BOOL("illegal_is_loss", 1, PUFFER_LIVE,
                  "A stone into a full column loses the game; otherwise nothing moves."),
};

enum { CONNECT4_SCORE, CONNECT4_PERF, CONNECT4_RETURN, CONNECT4_EPISODE_LENGTH, CONNECT4_ILLEGAL, CONNECT4_NUM_LOG };
static const char *const connect4_log_fields[] = {"score", "perf", "episode_return", "episode_length",
                                                  "illegal_actions"};

typedef struct Connect4Options {
    int32_t opponent, depth, agent_first, illegal_is_loss;
} Connect4Options;

typedef struct Connect4 {
    PufferHead head;
    // Options; `pending` becomes `options` at the next reset.
    Connect4Options options, pending;
    int32_t agents;  // 2 with self_play
    // State of the episode. Side 0 is the first agent, side 1 the second one or the opponent.
    int32_t mover;  // whose turn it is, between steps
    uint64_t stones[2];
    uint64_t last;  // the last stone, 0 on an empty board
    int32_t length, illegal[2];
} Connect4;

static int connect4_check(const PufferValue *p, char *err, size_t len) {
    if (p[CONNECT4_OPPONENT].i != CONNECT4_WEIGHING || p[CONNECT4_DEPTH].i <= CONNECT4_MAX_WEIGHED) return 0;
    snprintf(err, len, "opponent=2 looks at most %d stones ahead, not depth=%lld (opponent=3 does)",
             CONNECT4_MAX_WEIGHED, (long long)p[CONNECT4_DEPTH].i);
    return 1;
}

static void connect4_spaces(const PufferValue *p, PufferSpaces *spaces) {
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = CONNECT4_OBS;
    spaces->obs_low = -1;
    spaces->obs_high = 1;
    spaces->action_kind = PUFFER_DISCRETE;
    spaces->num_heads = 1;
    spaces->head_size[0] = CONNECT4_COLUMNS;
    spaces->agents = p[CONNECT4_SELF_PLAY].i ? 2 : 1;
    spaces->has_mask = 1;
}

static size_t connect4_state_size(const PufferValue *p) {
    (void)p;
    return sizeof(Connect4);
}

static void connect4_set_params(void *state, const PufferValue *p) {
    ((Connect4 *)state)->pending = (Connect4Options){.opponent = (int32_t)p[CONNECT4_OPPONENT].i,
                                                     .depth = (int32_t)p[CONNECT4_DEPTH].i,
                                                     .agent_first = (int32_t)p[CONNECT4_AGENT_FIRST].i,
                                                     .illegal_is_loss = (int32_t)p[CONNECT4_ILLEGAL_IS_LOSS].i};
}

static void connect4_init(void *state, const PufferValue *p, const void *shared) {
    (void)shared;
    connect4_set_params(state, p);
    ((Connect4 *)state)->agents = p[CONNECT4_SELF_PLAY].i ? 2 : 1;
}

// ---------------------------------------------------------------------------------------------------------------------
// The board.

// The lowest empty cell of every column that is not full.
static inline uint64_t connect4_moves(uint64_t occupied) { return (occupied + CONNECT4_BOTTOM) & CONNECT4_BOARD; }

// Empty cells, reachable or not, in which a stone would make four of these stones in a line.
static inline uint64_t connect4_wins(uint64_t stones, uint64_t occupied) {
    uint64_t wins = (stones << 1) & (stones << 2) & (stones << 3);
    for (int shift = 6; shift <= 8; shift++) {
        const uint64_t up = (stones << shift) & (stones << 2 * shift);
        const uint64_t down = (stones >> shift) & (stones >> 2 * shift);
        wins |= up & ((stones << 3 * shift) | (stones >> shift));
        wins |= down & ((stones >> 3 * shift) | (stones << shift));
    }
    return wins & ~occupied & CONNECT4_BOARD;
}

static inline int connect4_has_four(uint64_t stones) {
    uint64_t fours = stones & (stones >> 1) & (stones >> 2) & (stones >> 3);
    for (int shift = 6; shift <= 8; shift++) {
        const uint64_t pairs = stones & (stones >> shift);
        fours |= pairs & (pairs >> 2 * shift);
    }
    return fours != 0;
}

static inline int connect4_obs_index(uint64_t stone) {
    const int bit = __builtin_ctzll(stone);
    return bit - bit / 7;
}

// ---------------------------------------------------------------------------------------------------------------------
// The opponents. Each offers a set of cells, of which one is drawn.

// The value of a position for the side to move, `left` >= 1 stones ahead: the sum over all its stones of 10^left for
// one that wins, else of minus the value of what follows. A sum and not a maximum, so it tells apart what negamax calls
// equal: where more of the other side's replies go wrong. The last two stones are counted with masks, not played.
static int64_t connect4_weigh(uint64_t own, uint64_t other, int left) {
    static const int64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000};  // up to CONNECT4_MAX_WEIGHED
    const uint64_t occupied = own | other, moves = connect4_moves(occupied);
    const uint64_t wins = connect4_wins(own, occupied) & moves;
    uint64_t rest = moves & ~wins;
    int64_t value = powers[left] * __builtin_popcountll(wins);
    if (left == 1) return value;
    if (left == 2) {  // after each stone of `rest` the other side wins where it did, and right above, but not there
        const uint64_t threats = connect4_wins(other, occupied);
        const int stay = __builtin_popcountll(rest) * __builtin_popcountll(threats & moves);
        const int blocked = __builtin_popcountll(threats & rest), opened = __builtin_popcountll(threats & rest << 1);
        return value - powers[1] * (stay - blocked + opened);
    }
    for (; rest; rest &= rest - 1) value -= connect4_weigh(other, own | (rest & (0 - rest)), left - 1);
    return value;
}

// A stone that wins, else every stone that leaves the other side the least value.
static uint64_t connect4_heaviest_moves(uint64_t own, uint64_t other, int depth) {
    const uint64_t occupied = own | other, moves = connect4_moves(occupied);
    const uint64_t wins = connect4_wins(own, occupied) & moves;
    uint64_t best_moves = 0;
    int64_t best = INT64_MAX;
    if (wins) return wins;
    for (uint64_t rest = moves; rest; rest &= rest - 1) {
        const uint64_t move = rest & (0 - rest);
        const int64_t value = connect4_weigh(other, own | move, depth);
        if (value < best) best_moves = 0;
        if (value <= best) best_moves |= move;
        if (value < best) best = value;
    }
    return best_moves;
}

// Columns from the middle outwards: the best are looked at first.
static const uint8_t connect4_order[CONNECT4_COLUMNS] = {3, 2, 4, 1, 5, 0, 6};

// Negamax: the value of a position for the side to move, looking `left` >= 1 stones ahead. A win by the stone with
// which k stones were left to look at counts k, a loss by it -k, anything else 0.
// The result is exact within (alpha, beta), otherwise a bound. A win or the end of the board ends a line early; a side
// that does not stop a win of the next stone gets the lowest value there is, so only stones that stop it are tried.
static int connect4_search(uint64_t own, uint64_t other, int left, int alpha, int beta) {
    const uint64_t occupied = own | other;
    uint64_t moves = connect4_moves(occupied);
    if (connect4_wins(own, occupied) & moves) return left;
    if (left == 1 || moves == 0) return 0;
    const uint64_t threats = connect4_wins(other, occupied), forced = threats & moves;
    if (forced & (forced - 1)) return 1 - left;
    if (forced) moves = forced;
    moves &= ~(threats >> 1);  // a stone right below a threat makes it real
    if (moves == 0) return 1 - left;
    if (left == 2) return 0;
    int best = 1 - left;
    for (int i = 0; i < CONNECT4_COLUMNS; i++) {
        const uint64_t move = moves & CONNECT4_COLUMN(connect4_order[i]);
        if (move == 0) continue;
        const int value = -connect4_search(other, own | move, left - 1, -beta, -alpha);
        if (value > best) best = value;
        if (best > alpha) alpha = best;
        if (alpha >= beta || best >= left - 2) break;  // no win is sooner than the stone after the next
    }
    return best;
}

// Every cell of the best value, `depth` counting the own stone. A window that begins below the best so far proves
// equality as well as superiority.
static uint64_t connect4_best_moves(uint64_t own, uint64_t other, int depth) {
    const uint64_t occupied = own | other, moves = connect4_moves(occupied);
    const uint64_t wins = connect4_wins(own, occupied) & moves;
    if (wins) return wins;
    const uint64_t threats = connect4_wins(other, occupied);
    uint64_t best_moves = 0;
    int best = -CONNECT4_OBS;
    for (int i = 0; i < CONNECT4_COLUMNS; i++) {
        const uint64_t move = moves & CONNECT4_COLUMN(connect4_order[i]);
        if (move == 0) continue;
        const int loses = (threats & moves & ~move) != 0 || (threats & move << 1) != 0;
        const int value = loses ? 1 - depth : -connect4_search(other, own | move, depth - 1, -CONNECT4_OBS, 1 - best);
        if (value > best) best_moves = 0;
        if (value >= best) best_moves |= move;
        if (value > best) best = value;
    }
    return best_moves;
}

static inline uint64_t connect4_candidates(const Connect4 *env) {
    const uint64_t own = env->stones[1], other = env->stones[0], occupied = own | other;
    if (env->options.opponent == CONNECT4_WEIGHING) return connect4_heaviest_moves(own, other, env->options.depth);
    if (env->options.opponent == CONNECT4_NEGAMAX) return connect4_best_moves(own, other, env->options.depth + 1);
    const uint64_t moves = connect4_moves(occupied);
    if (env->options.opponent == CONNECT4_RANDOM) return moves;
    const uint64_t wins = connect4_wins(own, occupied) & moves, blocks = connect4_wins(other, occupied) & moves;
    return wins ? wins : blocks ? blocks : moves;
}

static inline uint64_t connect4_draw_lot(PufferRng *rng, uint64_t cells) {
    for (uint32_t k = puffer_rng_below(rng, (uint32_t)__builtin_popcountll(cells)); k > 0; k--) cells &= cells - 1;
    return cells & (0 - cells);
}

// ---------------------------------------------------------------------------------------------------------------------
// Rows.

static inline void connect4_write_mask(const Connect4 *env, int agent, uint8_t *mask) {
    const uint64_t occupied = env->stones[0] | env->stones[1];
    if (mask == NULL) return;
    for (int column = 0; column < CONNECT4_COLUMNS; column++) {
        mask[column] = (uint8_t)(~occupied >> (7 * column + CONNECT4_ROWS - 1) & 1);
    }
    if (env->mover == agent) return;
    memset(mask, 0, CONNECT4_COLUMNS);
    mask[0] = 1;
}

static inline void connect4_write_masks(const Connect4 *env) {
    for (int agent = 0; agent < env->agents; agent++) {
        connect4_write_mask(env, agent, puffer_mask_row(&env->head, agent, CONNECT4_COLUMNS));
    }
}

static void connect4_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    const Connect4 *env = (const Connect4 *)state;
    float *row = (float *)obs_row;
    const uint64_t own = env->stones[agent], other = env->stones[1 - agent];
    for (int column = 0, k = 0; column < CONNECT4_COLUMNS; column++) {
        for (int bit = 7 * column; bit < 7 * column + CONNECT4_ROWS; bit++, k++) {
            row[k] = (float)((int)(own >> bit & 1) - (int)(other >> bit & 1));
        }
    }
    connect4_write_mask(env, agent, mask_row);
}

// Rows of observations hold the board all the time; a stone changes one float of each.
static inline void connect4_drop(Connect4 *env, int side, uint64_t cell) {
    const int index = connect4_obs_index(cell);
    env->stones[side] |= cell;
    env->last = cell;
    for (int agent = 0; agent < env->agents; agent++) {
        float *row = (float *)puffer_obs(&env->head, agent, CONNECT4_OBS * sizeof(float));
        row[index] = agent == side ? 1.0f : -1.0f;
    }
}

static inline void connect4_answer(Connect4 *env) {
    connect4_drop(env, 1, connect4_draw_lot(&env->head.rng, connect4_candidates(env)));
    env->mover = 0;
}

static void connect4_reset(void *state) {
    Connect4 *env = (Connect4 *)state;
    env->head.fresh = 0;
    env->options = env->pending;
    env->stones[0] = env->stones[1] = env->last = 0;
    env->length = env->illegal[0] = env->illegal[1] = 0;
    const int32_t first = env->options.agent_first;
    env->mover = first == 2 ? (int32_t)puffer_rng_below(&env->head.rng, 2) : 1 - first;
    for (int agent = 0; agent < env->agents; agent++) {
        memset(puffer_obs(&env->head, agent, CONNECT4_OBS * sizeof(float)), 0, CONNECT4_OBS * sizeof(float));
    }
    if (env->agents == 1 && env->mover == 1) connect4_answer(env);
    connect4_write_masks(env);
}

// ---------------------------------------------------------------------------------------------------------------------
// Steps.

// Ends the game: `result` is 1 if side 0 has won, -1 if it has lost, 0 for a draw.
static void connect4_finish(Connect4 *env, float result) {
    for (int agent = 0; agent < env->agents; agent++) {
        const float reward = agent == 0 ? result : -result;
        *puffer_reward(&env->head, agent) = reward;
        puffer_end(&env->head, agent, 1, CONNECT4_OBS * sizeof(float));
        float *log = puffer_log(&env->head, agent, CONNECT4_NUM_LOG);
        log[CONNECT4_SCORE] = reward;
        log[CONNECT4_PERF] = 0.5f * (reward + 1.0f);
        log[CONNECT4_RETURN] = reward;
        log[CONNECT4_EPISODE_LENGTH] = (float)env->length;
        log[CONNECT4_ILLEGAL] = (float)env->illegal[agent];
    }
    connect4_reset(env);
}

// The cell in which the mover's stone lands; 0 for a full column.
static inline uint64_t connect4_chosen(Connect4 *env) {
    int32_t *illegal = &env->illegal[env->mover], replaced = 0;
    const int column = puffer_discrete(&env->head, env->mover, 0, 1, CONNECT4_COLUMNS, 0, &replaced);
    const uint64_t cell = connect4_moves(env->stones[0] | env->stones[1]) & CONNECT4_COLUMN(column);
    *illegal += (replaced || cell == 0) && *illegal < INT32_MAX;
    return cell;
}

// 1 if the stone that `side` has just dropped ended the game.
static inline int connect4_is_over(Connect4 *env, int side) {
    if (connect4_has_four(env->stones[side])) {
        connect4_finish(env, side == 0 ? 1.0f : -1.0f);
        return 1;
    }
    if ((env->stones[0] | env->stones[1]) == CONNECT4_BOARD) {
        connect4_finish(env, 0.0f);
        return 1;
    }
    return 0;
}

static inline void connect4_step(Connect4 *env) {
    const int side = env->mover;
    const uint64_t cell = connect4_chosen(env);
    env->length += env->length < INT32_MAX;
    if (cell == 0) {
        if (env->options.illegal_is_loss) connect4_finish(env, side == 0 ? -1.0f : 1.0f);
        return;
    }
    connect4_drop(env, side, cell);
    if (connect4_is_over(env, side)) return;
    if (env->agents == 2) {
        env->mover = 1 - side;
    } else {
        connect4_answer(env);
        if (connect4_is_over(env, 1)) return;
    }
    connect4_write_masks(env);
}

// ---------------------------------------------------------------------------------------------------------------------
// Pictures and play.

static void connect4_draw(const void *state, PufferCanvas *canvas) {
    const Connect4 *env = (const Connect4 *)state;
    const float cell = CONNECT4_CELL, half = 0.5f * cell;
    if (!puffer_canvas(canvas, CONNECT4_COLUMNS * CONNECT4_CELL, CONNECT4_ROWS * CONNECT4_CELL, 2.0f)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    for (int column = 0; column < CONNECT4_COLUMNS; column++) {
        for (int row = 0; row < CONNECT4_ROWS; row++) {
            const uint64_t bit = UINT64_C(1) << (7 * column + row);
            const float x = (float)column * cell + half, y = (float)(CONNECT4_ROWS - 1 - row) * cell + half;
            const uint32_t stone = env->stones[1] & bit ? PUFFER_RED : 0x123838;
            puffer_disc(canvas, x, y, 0.42f * cell, env->stones[0] & bit ? PUFFER_CYAN : stone);
            if (env->last == bit) puffer_ring(canvas, x, y, 0.42f * cell, 6.0f, PUFFER_WHITE);
        }
    }
}

// Six lines from the top row on: X side 0 (the agent), O side 1, and the columns' keys.
static int connect4_text(const void *state, char *buf, size_t len) {
    const Connect4 *env = (const Connect4 *)state;
    char board[(CONNECT4_ROWS + 1) * (CONNECT4_COLUMNS + 1) + 1], *next = board;
    for (int row = CONNECT4_ROWS - 1; row >= 0; row--) {
        for (int column = 0; column < CONNECT4_COLUMNS; column++) {
            const uint64_t bit = UINT64_C(1) << (7 * column + row);
            *next++ = env->stones[0] & bit ? 'X' : env->stones[1] & bit ? 'O' : '.';
        }
        *next++ = '\n';
    }
    memcpy(next, "1234567\n", sizeof "1234567\n");
    return snprintf(buf, len, "%s", board);
}

// Keys 1 to 7, or the mouse, drop a stone.
static int connect4_human(const void *state, const PufferKeys *keys, void *action) {
    (void)state;
    for (int column = 0; column < CONNECT4_COLUMNS; column++) {
        const int is_under = (int)(keys->mouse_x * CONNECT4_COLUMNS) == column;
        if (!keys->pressed['1' + column] && !(keys->mouse && is_under)) continue;
        *(int32_t *)action = column;
        return 1;
    }
    return -1;
}

PUFFER_ENV(connect4, Connect4, .version = 2, .params = connect4_params, .num_params = CONNECT4_NUM_PARAMS,
           .log_fields = connect4_log_fields, .num_log_fields = CONNECT4_NUM_LOG, .check = connect4_check,
           .spaces = connect4_spaces, .state_size = connect4_state_size, .init = connect4_init,
           .set_params = connect4_set_params, .reset = connect4_reset, .observe = connect4_observe,
           .draw = connect4_draw, .text = connect4_text, .human = connect4_human);

#endif
