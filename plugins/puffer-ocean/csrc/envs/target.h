// Target: agents steer over a shared arena; whoever comes within capture_radius of a goal takes it, and the goal moves.
// A step turns the heading by up to 4/12 rad, changes the speed by up to 2 and moves; nothing ever ends, but an agent
// without a goal for a multiple of `relocate` steps is cut off and moved. Rules: PufferLib 4.0 (MIT). A step is 1/60 s.
#ifndef PUFFER_OCEAN_TARGET_H
#define PUFFER_OCEAN_TARGET_H

#include <puffer/draw.h>
#include <puffer/vec.h>

#define TARGET_TURNS 9    // actions of head 0
#define TARGET_THRUSTS 5  // actions of head 1
#define TARGET_NO_TURN 4  // the middle of each head changes nothing
#define TARGET_NO_THRUST 2
#define TARGET_TURN (1.0f / 12.0f)  // rad per step of head 0
#define TARGET_MAX_SPEED 20.0f      // units per step
#define TARGET_TWO_PI 6.28318531f
#define TARGET_LENGTH_PERF 0.01f  // perf lost per step spent on one goal
#define TARGET_CANVAS 1080.0f     // longest side of the picture, pixels
#define TARGET_OWN 4              // floats of a row that follow the two blocks

// Observation, float32, G goals and A agents, all distances as fractions of the arena:
//   0 .. 2G-1          goal g        (dx / width, dy / height)    -1..1
//   2G .. 2(G+A)-1     agent a       (dx / width, dy / height)    -1..1, (0, 0) for the agent itself
//   2(G+A)             heading / (2 pi)                           0..1
//   2(G+A)+1           reward of the last step                    0..G
//   2(G+A)+2, +3       x / width, y / height                      0..1

enum {
    TARGET_WIDTH,
    TARGET_HEIGHT,
    TARGET_NUM_AGENTS,
    TARGET_NUM_GOALS,
    TARGET_CAPTURE_RADIUS,
    TARGET_RELOCATE,
    TARGET_CLIP_HEADING,
    TARGET_NUM_PARAMS
};

static const PufferParam target_params[] = {
    PUFFER_P_INT("width", 1080, 128, 16384, 0, 0, "Width of the arena."),
    PUFFER_P_INT("height", 720, 128, 16384, 0, 0, "Height of the arena."),
    PUFFER_P_INT("num_agents", 8, 1, 1024, 0, 0, "Agents in one arena."),
    PUFFER_P_INT("num_goals", 4, 1, 256, 0, 0, "Goals in one arena."),
    PUFFER_P_FLOAT("capture_radius", 64, 1, 1000, 0, "An agent this close to a goal takes it."),
    PUFFER_P_INT("relocate", 512, 0, 1000000, 0, 0, "Steps without a goal after which an agent is moved; 0 never."),
    PUFFER_P_BOOL("clip_heading", 0, 0, "Clip the heading to 0..2 pi, as PufferLib does, instead of wrapping it."),
};

// One row is logged by an agent in each step in which it takes a goal.
enum { TARGET_SCORE, TARGET_PERF, TARGET_RETURN, TARGET_EPISODE_LENGTH, TARGET_ILLEGAL, TARGET_NUM_LOG };
static const char *const target_log_fields[] = {"score", "perf", "episode_return", "episode_length", "illegal_actions"};

typedef struct Target {
    PufferHead head;
    // Options.
    float width, height, inverse_width, inverse_height, capture_squared;
    int32_t num_agents, num_goals, relocate, clip_heading;
    // Behind the struct, 4 bytes each: points 2(G+A) (x, y of the goals, then of the agents), then A each of heading,
    // speed, reward, ticks (since the last goal), illegal (actions since the last goal).
} Target;

static inline float *target_points(const Target *env) { return (float *)(env + 1); }

static inline float *target_heading(const Target *env) {
    return target_points(env) + 2 * (env->num_goals + env->num_agents);
}

static inline float *target_speed(const Target *env) { return target_heading(env) + env->num_agents; }

static inline float *target_reward(const Target *env) { return target_speed(env) + env->num_agents; }

static inline int32_t *target_ticks(const Target *env) { return (int32_t *)(target_reward(env) + env->num_agents); }

static inline int32_t *target_illegal(const Target *env) { return target_ticks(env) + env->num_agents; }

static inline int target_row_floats(const Target *env) { return 2 * (env->num_goals + env->num_agents) + TARGET_OWN; }

static void target_spaces(const PufferValue *p, PufferSpaces *spaces) {
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = (int32_t)(2 * (p[TARGET_NUM_GOALS].i + p[TARGET_NUM_AGENTS].i)) + TARGET_OWN;
    spaces->obs_low = -1;
    spaces->obs_high = (double)p[TARGET_NUM_GOALS].i;  // the last reward, where one step takes every goal
    spaces->action_kind = PUFFER_MULTI;
    spaces->num_heads = 2;
    spaces->head_size[0] = TARGET_TURNS;
    spaces->head_size[1] = TARGET_THRUSTS;
    spaces->agents = (int32_t)p[TARGET_NUM_AGENTS].i;
}

static size_t target_state_size(const PufferValue *p) {
    const size_t agents = (size_t)p[TARGET_NUM_AGENTS].i, goals = (size_t)p[TARGET_NUM_GOALS].i;
    return sizeof(Target) + (2 * (goals + agents) + 5 * agents) * sizeof(float);
}

static void target_init(void *state, const PufferValue *p, const void *shared) {
    Target *env = (Target *)state;
    (void)shared;
    env->width = (float)p[TARGET_WIDTH].i;
    env->height = (float)p[TARGET_HEIGHT].i;
    env->inverse_width = 1.0f / env->width;
    env->inverse_height = 1.0f / env->height;
    env->capture_squared = (float)(p[TARGET_CAPTURE_RADIUS].f * p[TARGET_CAPTURE_RADIUS].f);
    env->num_agents = (int32_t)p[TARGET_NUM_AGENTS].i;
    env->num_goals = (int32_t)p[TARGET_NUM_GOALS].i;
    env->relocate = (int32_t)p[TARGET_RELOCATE].i;
    env->clip_heading = (int32_t)p[TARGET_CLIP_HEADING].i;
}

static void target_place(Target *env, float *point) {
    point[0] = puffer_rng_range(&env->head.rng, 0.0f, env->width);
    point[1] = puffer_rng_range(&env->head.rng, 0.0f, env->height);
}

static inline void target_write_row(const Target *env, int agent, float *restrict row) {
    const float *points = target_points(env);
    const int num_floats = 2 * (env->num_goals + env->num_agents);
    const float *own = points + 2 * (env->num_goals + agent);
    const float x = own[0], y = own[1], inverse_width = env->inverse_width, inverse_height = env->inverse_height;
    for (int k = 0; k < num_floats; k += 2) {
        row[k] = (points[k] - x) * inverse_width;
        row[k + 1] = (points[k + 1] - y) * inverse_height;
    }
    row[num_floats] = target_heading(env)[agent] * (1.0f / TARGET_TWO_PI);
    row[num_floats + 1] = target_reward(env)[agent];
    row[num_floats + 2] = x * inverse_width;
    row[num_floats + 3] = y * inverse_height;
}

static void target_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    (void)mask_row;
    target_write_row((const Target *)state, agent, (float *)obs_row);
}

static inline void target_write_rows(const Target *env) {
    const size_t floats = (size_t)target_row_floats(env);
    float *row = (float *)puffer_obs(&env->head, 0, floats * sizeof(float));
    for (int a = 0; a < env->num_agents; a++, row += floats) target_write_row(env, a, row);
}

static void target_reset(void *state) {
    Target *env = (Target *)state;
    env->head.fresh = 0;
    memset(target_heading(env), 0, 5 * (size_t)env->num_agents * sizeof(float));
    for (int k = 0; k < env->num_goals + env->num_agents; k++) target_place(env, target_points(env) + 2 * k);
    target_write_rows(env);
}

// Sine and cosine of an angle in 0..2 pi, good to 1e-7: reduced to -pi/4..pi/4, then the polynomials of Cephes
// (Moshier, sinf.c). Own code and not the C library's, so that every machine computes the same bits and eight agents go
// at once.
static inline void target_sincos(float angle, float *sine, float *cosine) {
    const int quarter = (int)(angle * 0.636619772f + 0.5f);
    const float turns = (float)quarter;
    const float r = ((angle - turns * 1.5703125f) - turns * 4.83751297e-4f) - turns * 7.54978995e-8f, z = r * r;
    const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    const float c =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
    const int odd = quarter & 1;
    *sine = (odd ? c : s) * (float)(1 - (quarter & 2));
    *cosine = (odd ? s : c) * (float)(1 - ((quarter + 1) & 2));
}

static inline float target_clip(float value, float low, float high) {
    value = value < low ? low : value;
    return value > high ? high : value;
}

static inline float target_turn(float heading, float turn, int clip) {
    heading += turn;
    const float clipped = target_clip(heading, 0.0f, TARGET_TWO_PI);
    const int turns = (heading < 0.0f) - (heading >= TARGET_TWO_PI);
    return clip ? clipped : heading + TARGET_TWO_PI * (float)turns;
}

// Turns, accelerates and moves every agent. Free of branches, so that the compiler makes vector code of it.
static inline void target_move_agents(int num_agents, int clip, float width, float height,
                                      const int32_t *restrict actions, float *restrict positions,
                                      float *restrict headings, float *restrict speeds, int32_t *restrict ticks,
                                      int32_t *restrict illegal) {
    for (int a = 0; a < num_agents; a++) {
        const uint32_t turn = (uint32_t)actions[2 * a], thrust = (uint32_t)actions[2 * a + 1];
        const int turn_legal = turn < TARGET_TURNS, thrust_legal = thrust < TARGET_THRUSTS;
        const int turn_by = turn_legal ? (int)turn - TARGET_NO_TURN : 0;
        const int thrust_by = thrust_legal ? (int)thrust - TARGET_NO_THRUST : 0;
        const float heading = target_turn(headings[a], (float)turn_by * TARGET_TURN, clip);
        const float speed = target_clip(speeds[a] + (float)thrust_by, -TARGET_MAX_SPEED, TARGET_MAX_SPEED);
        float sine, cosine;
        target_sincos(heading, &sine, &cosine);
        headings[a] = heading;
        speeds[a] = speed;
        positions[2 * a] = target_clip(positions[2 * a] + speed * cosine, 0.0f, width);
        positions[2 * a + 1] = target_clip(positions[2 * a + 1] + speed * sine, 0.0f, height);
        const int32_t replaced = 2 - turn_legal - thrust_legal, room = INT32_MAX - illegal[a];
        ticks[a] += ticks[a] < INT32_MAX;  // a prime: once it stands still, nothing divides it
        illegal[a] += replaced < room ? replaced : room;
    }
}

static inline void target_move(Target *env) {
    const PufferHead *head = &env->head;
    target_move_agents(env->num_agents, env->clip_heading, env->width, env->height,
                       (const int32_t *)head->io->actions + head->row * 2, target_points(env) + 2 * env->num_goals,
                       target_heading(env), target_speed(env), target_ticks(env), target_illegal(env));
}

static void target_log_goals(Target *env, int agent, float taken) {
    const float length = (float)target_ticks(env)[agent];
    float *log = puffer_log(&env->head, agent, TARGET_NUM_LOG);
    log[TARGET_SCORE] = -length;
    log[TARGET_PERF] = fmaxf(0.0f, 1.0f - TARGET_LENGTH_PERF * length);
    log[TARGET_RETURN] = taken;
    log[TARGET_EPISODE_LENGTH] = length;
    log[TARGET_ILLEGAL] = (float)target_illegal(env)[agent];
    target_ticks(env)[agent] = 0;
    target_illegal(env)[agent] = 0;
}

// Agents take goals in the order of their index; a goal that was taken has moved before the next agent is looked at.
static inline void target_capture(Target *env) {
    float *goals = target_points(env), *rewards = target_reward(env);
    const float *agents = goals + 2 * env->num_goals;
    for (int a = 0; a < env->num_agents; a++) {
        float taken = 0.0f;
        for (int g = 0; g < env->num_goals; g++) {
            const float dx = goals[2 * g] - agents[2 * a], dy = goals[2 * g + 1] - agents[2 * a + 1];
            if (dx * dx + dy * dy > env->capture_squared) continue;
            target_place(env, goals + 2 * g);
            taken += 1.0f;
        }
        rewards[a] = taken;
        *puffer_reward(&env->head, a) = taken;
        if (taken > 0.0f) target_log_goals(env, a, taken);
    }
}

static inline int target_is_lost(const Target *env, int agent) {
    const int32_t ticks = target_ticks(env)[agent];
    return ticks >= env->relocate && ticks % env->relocate == 0;
}

// Cuts off agents that found nothing for too long. All of them are seen for the last time before any of them moves.
static void target_relocate(Target *env) {
    const size_t row_bytes = (size_t)target_row_floats(env) * sizeof(float);
    for (int a = 0; a < env->num_agents; a++) {
        if (!target_is_lost(env, a)) continue;
        target_write_row(env, a, (float *)puffer_obs(&env->head, a, row_bytes));
        puffer_end(&env->head, a, 0, row_bytes);
    }
    for (int a = 0; a < env->num_agents; a++) {
        if (target_is_lost(env, a)) target_place(env, target_points(env) + 2 * (env->num_goals + a));
    }
}

static inline void target_step(Target *env) {
    target_move(env);
    target_capture(env);
    if (env->relocate > 0) target_relocate(env);
    target_write_rows(env);
}

static void target_draw(const void *state, PufferCanvas *canvas) {
    const Target *env = (const Target *)state;
    const float longest = env->width > env->height ? env->width : env->height;
    const float scale = longest > TARGET_CANVAS ? TARGET_CANVAS / longest : 1.0f;
    if (!puffer_canvas(canvas, (int)(env->width * scale), (int)(env->height * scale), 60.0f)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    const float *points = target_points(env);
    for (int g = 0; g < env->num_goals; g++, points += 2) {
        puffer_disc(canvas, points[0] * scale, points[1] * scale, 10.0f, PUFFER_RED);
        puffer_ring(canvas, points[0] * scale, points[1] * scale, sqrtf(env->capture_squared) * scale, 1.0f,
                    PUFFER_RED);
    }
    for (int a = 0; a < env->num_agents; a++, points += 2) {
        const float x = points[0] * scale, y = points[1] * scale;
        float sine, cosine;
        target_sincos(target_heading(env)[a], &sine, &cosine);
        puffer_disc(canvas, x, y, 12.0f, PUFFER_CYAN);
        puffer_line(canvas, x, y, x + 20.0f * cosine, y + 20.0f * sine, 4.0f, PUFFER_WHITE);
    }
}

// The arena from above, a character about twice as high as wide: X goals, A agents, 0 the one that a human steers.
static int target_text(const void *state, char *buf, size_t len) {
    enum { LONGEST = 60 };
    const Target *env = (const Target *)state;
    const float longest = fmaxf(env->width, env->height), cell = longest / LONGEST;
    const int columns = (int)fmaxf(env->width * LONGEST / longest, 1.0f);
    const int rows = (int)fmaxf(env->height * LONGEST / (2.0f * longest), 1.0f);
    char grid[(LONGEST + 1) * LONGEST + 1], *end = grid;
    for (int row = 0; row < rows; row++, *end++ = '\n') {
        memset(end, '.', (size_t)columns);
        end += columns;
    }
    *end = '\0';
    const float *points = target_points(env);
    for (int k = env->num_goals + env->num_agents - 1; k >= 0; k--) {  // backwards: goals stay on top, then agent 0
        const int column = (int)fminf(points[2 * k] / cell, (float)(columns - 1));
        const int row = (int)fminf(points[2 * k + 1] / (2.0f * cell), (float)(rows - 1));
        grid[row * (columns + 1) + column] = k < env->num_goals ? 'X' : k == env->num_goals ? '0' : 'A';
    }
    return snprintf(buf, len, "%s", grid);
}

// A and D turn, W and S change the speed of agent 0.
static int target_human(const void *state, const PufferKeys *keys, void *action) {
    int32_t *heads = (int32_t *)action;
    (void)state;
    const int left = keys->down['a'] || keys->down[PUFFER_KEY_LEFT];
    const int right = keys->down['d'] || keys->down[PUFFER_KEY_RIGHT];
    const int faster = keys->down['w'] || keys->down[PUFFER_KEY_UP];
    const int slower = keys->down['s'] || keys->down[PUFFER_KEY_DOWN];
    heads[0] = TARGET_NO_TURN + (right ? 4 : 0) - (left ? 4 : 0);
    heads[1] = TARGET_NO_THRUST + (faster ? 2 : 0) - (slower ? 2 : 0);
    return left || right || faster || slower;
}

PUFFER_ENV(target, Target, .version = 1, .params = target_params, .num_params = TARGET_NUM_PARAMS,
           .log_fields = target_log_fields, .num_log_fields = TARGET_NUM_LOG, .spaces = target_spaces,
           .state_size = target_state_size, .init = target_init, .reset = target_reset, .observe = target_observe,
           .draw = target_draw, .text = target_text, .human = target_human);

#endif
