// squared: walk to the target on a board of size x size cells. The agent starts in the centre, the target is in another
// cell; reaching it wins, leaving the board loses, after more than 3 * size steps time is up. The smallest useful task,
// and the one to read first: an environment is this much.
// Source: ocean-envs 6.3; PufferLib 4 squared, except that running out of time is a truncation here.
//
// Observation, uint8 (size * size,), row-major: 0 empty, 1 agent, 2 target (1 where the agent stands on it).
// Action, Discrete(5): 0 stay, 1 down, 2 up, 3 left, 4 right.
#ifndef PUFFER_OCEAN_SQUARED_H
#define PUFFER_OCEAN_SQUARED_H

#include <puffer/draw.h>
#include <puffer/vec.h>

enum { SQUARED_ACTIONS = 5, SQUARED_CELL = 64, SQUARED_MAX_PIXELS = 1024 };  // pixels of a cell and of the picture
enum { SQUARED_EMPTY, SQUARED_AGENT, SQUARED_TARGET };                       // cells of an observation

enum { SQUARED_SIZE, SQUARED_TIMEOUT_REWARD, SQUARED_STAGGER, SQUARED_NUM_PARAMS };

static const PufferParam squared_params[] = {
    PUFFER_P_INT("size", 11, 3, 255, 2, 0, "Cells along one side, odd."),
    PUFFER_P_FLOAT("timeout_reward", -1, -1, 0, 0, "Reward when time is up."),
    PUFFER_P_BOOL("stagger", 0, 0, "Cut the first episode of each instance at a random step."),
};

enum { SQUARED_SCORE, SQUARED_PERF, SQUARED_RETURN, SQUARED_LENGTH, SQUARED_ILLEGAL, SQUARED_NUM_LOG };

static const char *const squared_log[] = {"score", "perf", "episode_return", "episode_length", "illegal_actions"};

typedef struct Squared {  // one cache line
    PufferHead head;
    float timeout_reward;
    int32_t illegal;
    uint16_t cell, target;  // indices into the observation
    uint16_t tick, limit;   // steps so far; the episode is cut when tick exceeds limit
    uint8_t x, y, size;
    uint8_t stagger : 1;  // option
    uint8_t cut : 1;      // this is a first episode with a limit of its own: not logged
} Squared;

static void squared_spaces(const PufferValue *p, PufferSpaces *spaces) {
    spaces->obs_dtype = PUFFER_U8;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = (int32_t)(p[SQUARED_SIZE].i * p[SQUARED_SIZE].i);
    spaces->obs_low = SQUARED_EMPTY;
    spaces->obs_high = SQUARED_TARGET;
    spaces->action_kind = PUFFER_DISCRETE;
    spaces->num_heads = 1;
    spaces->head_size[0] = SQUARED_ACTIONS;
    spaces->agents = 1;
}

static size_t squared_state_size(const PufferValue *p) {
    (void)p;
    return sizeof(Squared);
}

static void squared_init(void *state, const PufferValue *p, const void *shared) {
    Squared *env = state;
    (void)shared;
    env->size = (uint8_t)p[SQUARED_SIZE].i;
    env->timeout_reward = (float)p[SQUARED_TIMEOUT_REWARD].f;
    env->stagger = p[SQUARED_STAGGER].i != 0;
}

static inline size_t squared_cells(const Squared *env) { return (size_t)env->size * env->size; }

// Draws the whole row, whatever it holds.
static void squared_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    const Squared *env = state;
    uint8_t *row = obs_row;
    (void)agent;
    (void)mask_row;
    memset(row, SQUARED_EMPTY, squared_cells(env));
    row[env->target] = SQUARED_TARGET;
    row[env->cell] = SQUARED_AGENT;
}

// Puts agent and target in place; the row is the caller's to bring up to date.
static inline void squared_place(Squared *env) {
    const uint32_t centre = (uint32_t)squared_cells(env) / 2;
    const uint32_t target = puffer_rng_below(&env->head.rng, 2 * centre);
    env->x = env->y = env->size / 2;
    env->cell = (uint16_t)centre;
    env->target = (uint16_t)(target + (target >= centre));
    env->limit = (uint16_t)(3 * env->size);
    env->tick = 0;
    env->illegal = 0;
    env->cut = 0;
}

// A staggered first episode is cut after 1 to 3 * size + 1 steps, with no reward and no log.
static void squared_reset(void *state) {
    Squared *env = state;
    squared_place(env);
    if (env->stagger && env->head.fresh) {
        env->limit = (uint16_t)puffer_rng_below(&env->head.rng, (uint32_t)env->limit + 1);
        env->cut = 1;
    }
    env->head.fresh = 0;
    squared_observe(env, 0, puffer_obs(&env->head, 0, squared_cells(env)), NULL);
}

// Ends the episode and begins the next one. The row is brought up to date by four cells, not redrawn.
static void squared_finish(Squared *env, uint8_t *row, float reward, int terminal) {
    *puffer_reward(&env->head, 0) = reward;
    puffer_end(&env->head, 0, terminal, squared_cells(env));
    if (!env->cut) {
        float *log = puffer_log(&env->head, 0, SQUARED_NUM_LOG);
        log[SQUARED_SCORE] = log[SQUARED_RETURN] = reward;
        log[SQUARED_PERF] = reward > 0.0f;
        log[SQUARED_LENGTH] = (float)env->tick;
        log[SQUARED_ILLEGAL] = (float)env->illegal;
    }
    row[env->cell] = row[env->target] = SQUARED_EMPTY;
    squared_place(env);
    row[env->target] = SQUARED_TARGET;
    row[env->cell] = SQUARED_AGENT;
}

// One step. In most of them two cells of the row change, and nothing else is written.
static inline void squared_step(Squared *env) {
    static const int8_t dx[SQUARED_ACTIONS] = {0, 0, 0, -1, 1}, dy[SQUARED_ACTIONS] = {0, 1, -1, 0, 0};
    const int action = puffer_discrete(&env->head, 0, 0, 1, SQUARED_ACTIONS, 0, &env->illegal);
    uint8_t *row = puffer_obs(&env->head, 0, squared_cells(env));
    const uint32_t size = env->size, x = (uint32_t)(env->x + dx[action]), y = (uint32_t)(env->y + dy[action]);
    env->tick++;
    if (x >= size || y >= size) {  // the last observation still shows the agent on the cell that it left
        squared_finish(env, row, -1.0f, 1);
        return;
    }
    row[env->cell] = SQUARED_EMPTY;
    env->x = (uint8_t)x;
    env->y = (uint8_t)y;
    env->cell = (uint16_t)(y * size + x);
    row[env->cell] = SQUARED_AGENT;
    if (env->cell == env->target) {
        squared_finish(env, row, 1.0f, 1);
    } else if (env->tick > env->limit) {
        squared_finish(env, row, env->cut ? 0.0f : env->timeout_reward, 0);
    }
}

// The board, shrunk where its cells would not fit into SQUARED_MAX_PIXELS.
static void squared_draw(const void *state, PufferCanvas *canvas) {
    const Squared *env = state;
    const int fit = SQUARED_MAX_PIXELS / env->size, cell = fit < SQUARED_CELL ? fit : SQUARED_CELL;
    const float side = (float)cell;
    if (!puffer_canvas(canvas, cell * env->size, cell * env->size, 10)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    puffer_rect(canvas, side * (float)(env->target % env->size), side * (float)(env->target / env->size), side, side,
                PUFFER_RED);
    puffer_rect(canvas, side * (float)env->x, side * (float)env->y, side, side, PUFFER_CYAN);
}

// One line per row of cells; `used` counts on past the end of buf, as snprintf does.
static int squared_text(const void *state, char *buf, size_t len) {
    const Squared *env = state;
    size_t used = 0;
    for (uint32_t y = 0; y < env->size; y++) {
        for (uint32_t x = 0; x <= env->size; x++, used++) {
            const uint32_t cell = y * env->size + x;
            const char mark = x == env->size ? '\n' : cell == env->cell ? 'A' : cell == env->target ? 'X' : '.';
            if (used + 1 < len) buf[used] = mark;
        }
    }
    if (len > 0) buf[used < len ? used : len - 1] = '\0';
    return (int)used;
}

// Arrows or WASD.
static int squared_human(const void *state, const PufferKeys *keys, void *action) {
    static const uint8_t arrows[] = {PUFFER_KEY_DOWN, PUFFER_KEY_UP, PUFFER_KEY_LEFT, PUFFER_KEY_RIGHT};
    static const uint8_t letters[] = {'s', 'w', 'a', 'd'};
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        if (!keys->down[arrows[i]] && !keys->down[letters[i]]) continue;
        *(int32_t *)action = i + 1;
        return 1;
    }
    return 0;
}

PUFFER_ENV(squared, Squared, .version = 1, .params = squared_params, .num_params = SQUARED_NUM_PARAMS,
           .log_fields = squared_log, .num_log_fields = SQUARED_NUM_LOG, .spaces = squared_spaces,
           .state_size = squared_state_size, .init = squared_init, .reset = squared_reset, .observe = squared_observe,
           .draw = squared_draw, .text = squared_text, .human = squared_human);

#endif
