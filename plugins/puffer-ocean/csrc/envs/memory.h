// memory: recall bits after a delay. An episode shows seq_len bits, stays silent for `delay` steps, then wants the bits
// back in order; without memory nothing better than guessing is possible.
// Source: ocean-envs 6.2; PufferLib 4 memory with length 10 is seq_len 1, delay 8. A tick has no unit.
//
// Observation, float32 (1,): before action t, bit t as +1 or -1 while t < seq_len, else 0.
// Action, Discrete(2): the last seq_len actions repeat the bits (1 for +1, 0 for -1), earlier ones are ignored.
#ifndef PUFFER_OCEAN_MEMORY_H
#define PUFFER_OCEAN_MEMORY_H

#include <puffer/draw.h>
#include <puffer/vec.h>

enum { MEMORY_ACTIONS = 2, MEMORY_ROW = sizeof(float), MEMORY_SIDE = 96, MEMORY_GREEN = 0x00BB00 };

enum { MEMORY_SEQ_LEN, MEMORY_DELAY, MEMORY_NUM_PARAMS };

static const PufferParam memory_params[] = {
    PUFFER_P_INT("seq_len", 1, 1, 64, 0, 0, "Bits shown at the start and wanted back at the end."),
    PUFFER_P_INT("delay", 8, 0, 4096, 0, PUFFER_LIVE,
                 "Silent steps between the last bit shown and the first one wanted."),
};

enum { MEMORY_SCORE, MEMORY_PERF, MEMORY_RETURN, MEMORY_LENGTH, MEMORY_ILLEGAL, MEMORY_FRAC, MEMORY_NUM_LOG };

static const char *const memory_log[] = {"score",           "perf",       "episode_return", "episode_length",
                                         "illegal_actions", "recall_frac"};

typedef struct Memory {
    PufferHead head;
    int32_t seq_len, delay;
    uint64_t bits;    // bit t of the sequence: as many as the longest can have, whatever the delay
    int32_t tick;     // actions so far
    int32_t correct;  // bits recalled so far
    int32_t illegal;
    int32_t answer;         // of the last step, for the picture: 1 right, -1 wrong, 0 none was wanted
    int32_t pending_delay;  // LIVE, adopted by reset
} Memory;

// What the agent sees before its next action.
static inline float memory_value(const Memory *env) {
    if (env->tick >= env->seq_len) return 0.0f;
    return env->bits >> env->tick & 1 ? 1.0f : -1.0f;
}

static void memory_spaces(const PufferValue *p, PufferSpaces *spaces) {
    (void)p;
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = 1;
    spaces->obs_low = -1.0;
    spaces->obs_high = 1.0;
    spaces->action_kind = PUFFER_DISCRETE;
    spaces->num_heads = 1;
    spaces->head_size[0] = MEMORY_ACTIONS;
    spaces->agents = 1;
}

static size_t memory_state_size(const PufferValue *p) {
    (void)p;
    return sizeof(Memory);
}

static void memory_set_params(void *state, const PufferValue *p) {
    ((Memory *)state)->pending_delay = (int32_t)p[MEMORY_DELAY].i;
}

static void memory_init(void *state, const PufferValue *p, const void *shared) {
    (void)shared;
    ((Memory *)state)->seq_len = (int32_t)p[MEMORY_SEQ_LEN].i;
    memory_set_params(state, p);
}

static void memory_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    (void)agent;
    (void)mask_row;
    *(float *)obs_row = memory_value(state);
}

// Draws new bits; `answer` stays, so that a picture still shows how the last episode ended.
static void memory_reset(void *state) {
    Memory *env = state;
    const uint64_t low = puffer_rng_next(&env->head.rng), high = puffer_rng_next(&env->head.rng);
    env->head.fresh = 0;
    env->delay = env->pending_delay;
    env->bits = high << 32 | low;
    env->tick = env->correct = env->illegal = 0;
    *(float *)puffer_obs(&env->head, 0, MEMORY_ROW) = memory_value(env);
}

// Ends the episode after its last answer and begins the next one.
static void memory_finish(Memory *env) {
    const float frac = (float)env->correct / (float)env->seq_len;
    puffer_end(&env->head, 0, 1, MEMORY_ROW);
    float *log = puffer_log(&env->head, 0, MEMORY_NUM_LOG);
    log[MEMORY_SCORE] = log[MEMORY_PERF] = env->correct == env->seq_len;
    log[MEMORY_RETURN] = log[MEMORY_FRAC] = frac;
    log[MEMORY_LENGTH] = (float)env->tick;
    log[MEMORY_ILLEGAL] = (float)env->illegal;
    memory_reset(env);
}

// One step: judge the action where one is wanted, then show the next bit or silence.
static inline void memory_step(Memory *env) {
    const int action = puffer_discrete(&env->head, 0, 0, 1, MEMORY_ACTIONS, 0, &env->illegal);
    const int32_t wanted = env->tick - env->seq_len - env->delay;  // which bit this action has to repeat
    env->answer = 0;
    if (wanted >= 0) {
        env->answer = action == (int)(env->bits >> wanted & 1) ? 1 : -1;
        if (env->answer > 0) {
            env->correct++;
            *puffer_reward(&env->head, 0) = 1.0f / (float)env->seq_len;
        }
    }
    env->tick++;
    *(float *)puffer_obs(&env->head, 0, MEMORY_ROW) = memory_value(env);
    if (wanted + 1 == env->seq_len) memory_finish(env);
}

// Left the bit while it is shown, right whether the last answer was right, below the tick.
static void memory_draw(const void *state, PufferCanvas *canvas) {
    const Memory *env = state;
    const float side = MEMORY_SIDE, value = memory_value(env);
    char text[32];
    if (!puffer_canvas(canvas, 4 * MEMORY_SIDE, 2 * MEMORY_SIDE, 10)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    puffer_frame(canvas, side / 2, side / 4, side, side, 3, PUFFER_WHITE);
    puffer_frame(canvas, side * 5 / 2, side / 4, side, side, 3, PUFFER_WHITE);
    if (value != 0) {
        puffer_text(canvas, side / 2 + 24, side / 4 + 20, 8, PUFFER_CYAN, value > 0 ? "1" : "0");
    }
    if (env->answer != 0) {
        puffer_disc(canvas, side * 3, side * 3 / 4, side / 3, env->answer > 0 ? MEMORY_GREEN : PUFFER_RED);
    }
    snprintf(text, sizeof text, "TICK %d/%d", (int)env->tick, (int)(2 * env->seq_len + env->delay));
    puffer_text(canvas, side / 2, side * 3 / 2, 2, PUFFER_WHITE, text);
}

static int memory_text(const void *state, char *buf, size_t len) {
    const Memory *env = state;
    const float value = memory_value(env);
    return snprintf(buf, len, "bit %s  answer %s  tick %d/%d\n",
                    value == 0  ? "."
                    : value > 0 ? "1"
                                : "0",
                    env->answer == 0  ? "."
                    : env->answer > 0 ? "right"
                                      : "wrong",
                    (int)env->tick, (int)(2 * env->seq_len + env->delay));
}

// Left answers 0, right answers 1.
static int memory_human(const void *state, const PufferKeys *keys, void *action) {
    (void)state;
    const int zero = keys->pressed[PUFFER_KEY_LEFT] || keys->pressed['0'];
    const int one = keys->pressed[PUFFER_KEY_RIGHT] || keys->pressed['1'];
    if (!zero && !one) return -1;
    *(int32_t *)action = one;
    return 1;
}

PUFFER_ENV(memory, Memory, .version = 1, .params = memory_params, .num_params = MEMORY_NUM_PARAMS,
           .log_fields = memory_log, .num_log_fields = MEMORY_NUM_LOG, .spaces = memory_spaces,
           .state_size = memory_state_size, .init = memory_init, .set_params = memory_set_params, .reset = memory_reset,
           .observe = memory_observe, .draw = memory_draw, .text = memory_text, .human = memory_human);

#endif
