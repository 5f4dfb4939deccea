// The C interface of puffer environments, version 1: buffers, parameters, spaces and the table of one environment.
//
// One idea to hold: an environment is a block of bytes that begins with PufferHead and holds no pointer of its own.
// It reads actions from and writes results into rows of arrays that the host owns (PufferIO); everything a host has to
// know about it stands in one constant PufferEnvTable, handed over in a Python capsule named "puffer.env.v1".
// Needs stdint, stddef, string and math only; compiles as C11 and as C++17. vec.h adds the loop, draw.h the pixels.
#ifndef PUFFER_ENV_H
#define PUFFER_ENV_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PUFFER_ABI_VERSION 1u
#define PUFFER_CAPSULE "puffer.env.v1"
#define PUFFER_MAX_HEADS 32       // action heads, or dimensions of a Box action
#define PUFFER_MAX_LOG_FIELDS 64  // floats in one row of the log
#define PUFFER_LIVE 1u            // flag of a parameter that may change while running, from the next reset on

// ---------------------------------------------------------------------------------------------------------------------
// Buffers. rows = instances x agents per instance; the rows of one instance are consecutive.

typedef struct PufferIO {      // a pointer may be NULL except the first five
    void *observations;        // (rows, obs...)        dtype and shape from PufferSpaces
    void *actions;             // (rows,) int32, (rows, K) int32 or (rows, D) float32
    float *rewards;            // (rows,)
    uint8_t *terminals;        // (rows,)               1: the task reached its end
    uint8_t *truncations;      // (rows,)               1: a limit of time or size cut it; never both
    uint8_t *alive;            // (rows,)               1: an agent is there now
    uint8_t *action_mask;      // (rows, sum of head sizes)   1: legal
    void *final_observations;  // like observations; written for every row that ends
    float *log;                // (rows, num_log_fields)      values of the episode (or other unit) that ended
    uint8_t *logged;           // (rows,)               1: this row's log was written in this step
    void *reserved[6];
} PufferIO;

typedef struct PufferRng {  // xoshiro128++
    uint32_t s[4];
} PufferRng;

typedef struct PufferHead {  // the first member of every state struct; filled by the host
    const PufferIO *io;      // outlives the vector; its pointers may change between steps
    int64_t row;             // of the first agent
    PufferRng rng;           // the only source of randomness
    uint32_t fresh;          // 1 after init and reseeding; reset reads and clears it (staggered first episodes)
    uint32_t agents;         // rows of this instance
} PufferHead;

// ---------------------------------------------------------------------------------------------------------------------
// Parameters: one table is the source of options, their help, their validation and the fuzz test.

typedef enum PufferKind { PUFFER_INT, PUFFER_FLOAT, PUFFER_BOOL, PUFFER_ENUM, PUFFER_STRING } PufferKind;

typedef union PufferValue {  // BOOL and ENUM use i
    int64_t i;
    double f;
    const char *s;
} PufferValue;

typedef struct PufferParam {
    const char *name;
    PufferKind kind;
    PufferValue init, min, max, step;  // step 0: any value; an odd size is min 3, step 2
    const char *const *choices;        // ENUM: the names, NULL-terminated
    uint32_t flags;                    // PUFFER_LIVE
    const char *help;                  // one line
} PufferParam;

// Rows of a parameter table; `name` is a string, values reach C in the order of the table. For example
//   enum { HOPPER_SIZE, HOPPER_GRAVITY, HOPPER_NUM_PARAMS };
//   static const PufferParam hopper_params[] = {
//       PUFFER_P_INT("size", 11, 3, 255, 2, 0, "Cells along one side."),
//       PUFFER_P_FLOAT("gravity", 9.8, 0.1, 100, PUFFER_LIVE, "Metres per second squared.")};
#define PUFFER_P_INT(name, init, min, max, step, flags, help) \
    {name, PUFFER_INT, {.i = (init)}, {.i = (min)}, {.i = (max)}, {.i = (step)}, NULL, flags, help}
#define PUFFER_P_FLOAT(name, init, min, max, flags, help) \
    {name, PUFFER_FLOAT, {.f = (init)}, {.f = (min)}, {.f = (max)}, {.f = 0}, NULL, flags, help}
#define PUFFER_P_BOOL(name, init, flags, help) \
    {name, PUFFER_BOOL, {.i = (init)}, {.i = 0}, {.i = 1}, {.i = 1}, NULL, flags, help}
#define PUFFER_P_ENUM(name, init, choices, flags, help) \
    {name, PUFFER_ENUM, {.i = (init)}, {.i = 0}, {.i = 0}, {.i = 1}, choices, flags, help}
#define PUFFER_P_STRING(name, init, flags, help) \
    {name, PUFFER_STRING, {.s = (init)}, {.s = NULL}, {.s = NULL}, {.s = NULL}, NULL, flags, help}

// ---------------------------------------------------------------------------------------------------------------------
// Spaces, as a function of the parameters.

typedef enum PufferDtype { PUFFER_U8 = 1, PUFFER_I8 = 2, PUFFER_F32 = 3 } PufferDtype;
typedef enum PufferActions { PUFFER_DISCRETE = 1, PUFFER_MULTI = 2, PUFFER_BOX = 3 } PufferActions;

typedef struct PufferSpaces {  // zeroed before `spaces` is called
    PufferDtype obs_dtype;
    int32_t obs_ndim, obs_shape[4];
    double obs_low, obs_high;
    PufferActions action_kind;
    int32_t num_heads, head_size[PUFFER_MAX_HEADS];  // BOX: num_heads is the dimension, the bounds are -1 and 1
    int32_t agents;                                  // per instance
    uint8_t has_mask, has_alive;
} PufferSpaces;

// ---------------------------------------------------------------------------------------------------------------------
// Drawing and play.

typedef struct PufferCanvas {
    uint8_t *rgb;  // (height, width, 3); NULL: `draw` only fills width, height and fps
    int32_t width, height;
    float fps, zoom, pan_x, pan_y;
    int32_t follow;
} PufferCanvas;

typedef struct PufferKeys {
    uint8_t down[128], pressed[128];  // by ASCII code (letters in lower case); arrows are 1 to 4
    float mouse_x, mouse_y;           // 0..1 of the canvas
    uint8_t mouse, reserved;
    uint16_t agent;  // whom they move, counted within the instance
} PufferKeys;

enum { PUFFER_KEY_UP = 1, PUFFER_KEY_DOWN = 2, PUFFER_KEY_LEFT = 3, PUFFER_KEY_RIGHT = 4 };

// ---------------------------------------------------------------------------------------------------------------------
// The table.

typedef struct PufferVec PufferVec;

typedef struct PufferEnvTable {
    uint32_t abi_version, table_size, io_size, param_size, spaces_size;  // sizes of the writer's structs
    const char *name;
    uint32_t version;  // rises whenever a trajectory changes
    const PufferParam *params;
    int32_t num_params;
    const char *const *log_fields;  // the first five: score, perf, episode_return, episode_length, illegal_actions
    int32_t num_log_fields;
    int (*check)(const PufferValue *, char *err, size_t len);  // rules across parameters: 0, or a message in err
    void (*spaces)(const PufferValue *, PufferSpaces *);
    size_t (*state_size)(const PufferValue *);
    void *(*shared_new)(const PufferValue *, char *err, size_t len);  // optional: read-only data of one vector
    void (*shared_free)(void *);
    void (*init)(void *state, const PufferValue *, const void *shared);  // fills a zeroed block; allocates nothing
    void (*set_params)(void *state, const PufferValue *);                // optional: LIVE parameters, adopted by reset
    void (*reset)(void *state);  // a new episode; writes observations, masks, alive, never rewards or flags
    void (*step)(void *state);   // may not allocate, print, lock or call out
    void (*observe)(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row);  // mask_row may be NULL
    void (*draw)(const void *state, PufferCanvas *);                                      // optional
    int (*text)(const void *state, char *buf, size_t len);                                // optional: like snprintf
    // Optional: what keys mean, into a zeroed action. 1: a key gave it; 0: none did, and it stands for that;
    // -1: none did, and the game waits for one.
    int (*human)(const void *state, const PufferKeys *, void *action);
    // Written by PUFFER_ENV(...) of vec.h, compiled inside the plugin:
    void (*step_range)(void *base, size_t stride, int64_t first, int64_t count);
    PufferVec *(*vec_new)(const PufferValue *, int64_t instances, uint64_t seed, int64_t first_index, const PufferIO *,
                          int32_t threads, char *err, size_t len);  // NULL, and a message in err, on failure
    void (*vec_reset)(PufferVec *, int reseed, uint64_t seed);
    void (*vec_step)(PufferVec *);
    void *(*vec_base)(PufferVec *, size_t *stride);  // for a trainer with its own threads
    int64_t (*vec_log)(PufferVec *, double *sums);   // sums over rows logged since the last call, and their number
    void (*vec_free)(PufferVec *);
    const char *device_source;  // optional: CUDA source of step, reset and observe over the same state
    void *reserved[8];
} PufferEnvTable;

// ---------------------------------------------------------------------------------------------------------------------
// The generator: xoshiro128++ (Blackman and Vigna), seeded by splitmix64 from (seed, index of the instance).

static inline uint64_t puffer_mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static inline void puffer_rng_seed(PufferRng *rng, uint64_t seed, uint64_t index) {
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    // The seed is mixed before the index is added, so that (seed, index + 1) is no shifted copy of (seed + x, index).
    const uint64_t start = puffer_mix64(puffer_mix64(seed + golden) + index * UINT64_C(0xD1342543DE82EF95));
    const uint64_t a = puffer_mix64(start + golden), b = puffer_mix64(start + 2 * golden);
    rng->s[0] = (uint32_t)a;
    rng->s[1] = (uint32_t)(a >> 32);
    rng->s[2] = (uint32_t)b;
    rng->s[3] = (uint32_t)(b >> 32) | (a == 0 && b == 0);  // all zero is the one state that never leaves itself
}

static inline uint32_t puffer_rotl32(uint32_t x, int k) { return (x << k) | (x >> (32 - k)); }

static inline uint32_t puffer_rng_next(PufferRng *rng) {
    uint32_t *s = rng->s;
    const uint32_t result = puffer_rotl32(s[0] + s[3], 7) + s[0], t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = puffer_rotl32(s[3], 11);
    return result;
}

// Uniform in 0..n-1 without bias: multiply and reject (Lemire 2019, arXiv:1805.10941). n = 0 gives 0.
static inline uint32_t puffer_rng_below(PufferRng *rng, uint32_t n) {
    uint64_t m = (uint64_t)puffer_rng_next(rng) * n;
    if ((uint32_t)m < n) {
        const uint32_t threshold = (0u - n) % n;
        while ((uint32_t)m < threshold) m = (uint64_t)puffer_rng_next(rng) * n;
    }
    return (uint32_t)(m >> 32);
}

// Uniform in [0, 1): the top 24 bits, so every value is exact in float32.
static inline float puffer_rng_uniform(PufferRng *rng) { return (float)(puffer_rng_next(rng) >> 8) * 0x1p-24f; }

static inline float puffer_rng_range(PufferRng *rng, float low, float high) {
    return low + (high - low) * puffer_rng_uniform(rng);
}

// ---------------------------------------------------------------------------------------------------------------------
// Rows. `agent` counts within the instance.

// The action of one head, made legal: anything outside 0..size-1 becomes `fallback` and adds 1 to *illegal.
static inline int puffer_discrete(const PufferHead *head, int agent, int action_head, int num_heads, int size,
                                  int fallback, int32_t *illegal) {
    const int32_t *actions = (const int32_t *)head->io->actions;
    const int32_t action = actions[(head->row + agent) * num_heads + action_head];
    if ((uint32_t)action < (uint32_t)size) return action;
    ++*illegal;
    return fallback;
}

// One dimension of a Box action: NaN becomes 0, the rest is clipped to [-1, 1]; either adds 1 to *illegal.
static inline float puffer_box(const PufferHead *head, int agent, int dim, int num_dims, int32_t *illegal) {
    const float action = ((const float *)head->io->actions)[(head->row + agent) * num_dims + dim];
    if (action >= -1.0f && action <= 1.0f) return action;
    ++*illegal;
    return action > 1.0f ? 1.0f : action < -1.0f ? -1.0f : 0.0f;
}

static inline void *puffer_obs(const PufferHead *head, int agent, size_t row_bytes) {
    return (uint8_t *)head->io->observations + (size_t)(head->row + agent) * row_bytes;
}

static inline float *puffer_reward(const PufferHead *head, int agent) { return head->io->rewards + head->row + agent; }

// The agent's row of the action mask (`width` bytes, the sum of its head sizes), or NULL where the host wants none.
static inline uint8_t *puffer_mask_row(const PufferHead *head, int agent, int width) {
    uint8_t *mask = head->io->action_mask;
    return mask == NULL ? NULL : mask + (size_t)(head->row + agent) * (size_t)width;
}

static inline void puffer_alive(const PufferHead *head, int agent, int alive) {
    if (head->io->alive != NULL) head->io->alive[head->row + agent] = alive != 0;
}

// Ends the agent's episode: sets the flag and keeps the row, which must already hold the last observation.
// Call it before the log row is written and before the next episode's first observation overwrites the row.
static inline void puffer_end(const PufferHead *head, int agent, int terminal, size_t row_bytes) {
    const PufferIO *io = head->io;
    const size_t row = (size_t)(head->row + agent);
    (terminal ? io->terminals : io->truncations)[row] = 1;
    if (io->final_observations != NULL) {
        memcpy((uint8_t *)io->final_observations + row * row_bytes, (const uint8_t *)io->observations + row * row_bytes,
               row_bytes);
    }
}

// Marks the agent's row as logged and returns its `num_fields` floats, zeroed; fields in the order of the table.
static inline float *puffer_log(const PufferHead *head, int agent, int num_fields) {
#ifdef __cplusplus
    static thread_local float scratch[PUFFER_MAX_LOG_FIELDS];
#else
    static _Thread_local float scratch[PUFFER_MAX_LOG_FIELDS];
#endif
    const PufferIO *io = head->io;
    const size_t row = (size_t)(head->row + agent);
    // A host that wants no log still gets environments that write one: into a row of the thread's own.
    float *log = io->log == NULL ? scratch : io->log + row * (size_t)num_fields;
    if (io->logged != NULL) io->logged[row] = 1;
    memset(log, 0, (size_t)num_fields * sizeof(float));
    return log;
}

#ifdef __cplusplus
}
#endif
#endif
