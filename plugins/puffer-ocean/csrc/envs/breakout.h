// Breakout: a paddle keeps a ball in play and breaks a wall of bricks, twice over, for at most 864 points.
// A ball that falls below the paddle is lost; the game ends without balls, with the last point or after max_steps.
// Rules and layout follow the Breakout of PufferLib; what differs stands in docs/breakout.md. One frame is 1/60 s.
#ifndef PUFFER_OCEAN_BREAKOUT_H
#define PUFFER_OCEAN_BREAKOUT_H

#include <puffer/draw.h>
#include <puffer/vec.h>

#define BREAKOUT_FRAME_S (1.0 / 60.0)  // s
#define BREAKOUT_WALL_TOP 50           // px, upper edge of the first row
#define BREAKOUT_PADDLE_GAP 10         // px below the paddle
#define BREAKOUT_START_RISE 30         // px, a new ball's upper edge above the middle of the field
#define BREAKOUT_BALLS 5               // spare balls at the start
#define BREAKOUT_HITS_PER_SPEED_UP 4
#define BREAKOUT_SPEED_UP 64.0f      // px/s
#define BREAKOUT_FAST_ROWS 3         // a brick in one of these sets the full speed
#define BREAKOUT_MAX_ANGLE_DEG 89.0  // from vertical, so that a struck ball always rises
#define BREAKOUT_PI 3.14159265358979323846

// Observation, float32 (10 + rows x cols,):
//   0 paddle x / width   1 paddle y / height   2 ball x / width   3 ball y / height
//   4, 5 ball velocity / max_ball_speed, or (published_velocity = 1) in pixels per frame / 512
//   6 balls in play / 5   7 score / maximum   8 spare balls / 5   9 paddle width / paddle_width
//   10.. bricks, row by row: 0 present, 1 destroyed
// Action, Discrete(3): 0 stay, 1 left, 2 right; continuous = 1: Box(1), the share of paddle_speed to the right.
enum { BREAKOUT_SCALARS = 10 };

enum {
    BREAKOUT_FRAMESKIP,
    BREAKOUT_WIDTH,
    BREAKOUT_HEIGHT,
    BREAKOUT_PADDLE_WIDTH,
    BREAKOUT_PADDLE_HEIGHT,
    BREAKOUT_BALL_WIDTH,
    BREAKOUT_BALL_HEIGHT,
    BREAKOUT_BRICK_WIDTH,
    BREAKOUT_BRICK_HEIGHT,
    BREAKOUT_BRICK_ROWS,
    BREAKOUT_BRICK_COLS,
    BREAKOUT_INITIAL_BALL_SPEED,
    BREAKOUT_MAX_BALL_SPEED,
    BREAKOUT_PADDLE_SPEED,
    BREAKOUT_CONTINUOUS,
    BREAKOUT_MAX_STEPS,
    BREAKOUT_PUBLISHED_VELOCITY,
    BREAKOUT_NUM_PARAMS
};

static const PufferParam breakout_params[BREAKOUT_NUM_PARAMS] = {
    PUFFER_P_INT("frameskip", 4, 1, 16, 1, 0, "Frames of 1/60 s per step; the action is repeated."),
    PUFFER_P_INT("width", 576, 64, 4096, 1, 0, "Width of the field in pixels."),
    PUFFER_P_INT("height", 330, 64, 4096, 1, 0, "Height of the field in pixels."),
    PUFFER_P_INT("paddle_width", 62, 8, 4096, 1, 0, "Width of the paddle in pixels; at most width."),
    PUFFER_P_INT("paddle_height", 8, 1, 4096, 1, 0, "Height of the paddle in pixels."),
    PUFFER_P_INT("ball_width", 32, 2, 64, 1, 0, "Width of the ball in pixels."),
    PUFFER_P_INT("ball_height", 32, 2, 64, 1, 0, "Height of the ball in pixels."),
    PUFFER_P_INT("brick_width", 32, 1, 4096, 1, 0, "Width of a brick in pixels; a row has to fit into width."),
    PUFFER_P_INT("brick_height", 12, 1, 4096, 1, 0, "Height of a brick in pixels."),
    PUFFER_P_INT("brick_rows", 6, 1, 32, 1, 0, "Rows of bricks."),
    PUFFER_P_INT("brick_cols", 18, 1, 64, 1, 0, "Bricks in one row."),
    PUFFER_P_FLOAT("initial_ball_speed", 256, 16, 2000, 0, "Speed of a new ball in pixels per second."),
    PUFFER_P_FLOAT("max_ball_speed", 448, 16, 2000, 0, "Largest speed in pixels per second."),
    PUFFER_P_FLOAT("paddle_speed", 620, 1, 4096, 0, "Speed of the paddle in pixels per second."),
    PUFFER_P_BOOL("continuous", 0, 0, "Steer by a velocity in [-1, 1] instead of stay, left, right."),
    PUFFER_P_INT("max_steps", 20000, 0, 10000000, 1, 0, "Steps after which a game is truncated; 0 is never."),
    PUFFER_P_BOOL("published_velocity", 0, 0, "Observe the velocity as PufferLib does: pixels per frame / 512."),
};

enum {
    BREAKOUT_LOG_SCORE,
    BREAKOUT_LOG_PERF,
    BREAKOUT_LOG_RETURN,
    BREAKOUT_LOG_LENGTH,
    BREAKOUT_LOG_ILLEGAL,
    BREAKOUT_LOG_BALLS_LOST,
    BREAKOUT_LOG_FIELDS
};

static const char *const breakout_log_fields[BREAKOUT_LOG_FIELDS] = {
    "score", "perf", "episode_return", "episode_length", "illegal_actions", "balls_lost"};

typedef struct Breakout {  // 256 bytes with six rows; the first two lines are all that a step of free flight reads
    PufferHead head;
    // Positions are upper left corners in pixels, velocities pixels per frame.
    float paddle_x, ball_x, ball_y, vx, vy;
    float max_paddle_x;  // width - present width of the paddle
    float max_ball_x;    // the ball touches the right side
    float wall_bottom;   // below it there is no brick
    float contact_y;     // the ball touches the paddle
    float paddle_step;   // px per frame
    float inverse_width, inverse_height;
    int32_t steps, step_limit;
    uint8_t fired, over;                        // a ball is in play; the game is lost or won
    uint8_t continuous, frameskip, rows, cols;  // options
    uint8_t balls, lost, hits;                  // spare balls, balls lost, hits of this round modulo 256
    int32_t score, max_score, illegal;
    float paddle_width, ball_speed;  // px, px/s
    float inverse_vx, inverse_vy;    // frames per px; kept because velocities change rarely
    float ball_width, ball_height, brick_width, brick_height;
    float inverse_brick_width, inverse_brick_height, inverse_paddle_width, velocity_scale, score_scale;
    float paddle_y, lost_y, start_y;  // px: lost_y is the lower edge of the paddle
    float full_paddle_width, initial_ball_speed, max_ball_speed, launch_vx, launch_vy;
    uint64_t wall[];  // (rows,) bit c: the brick in column c is present
} Breakout;

// ---------------------------------------------------------------------------------------------------------------------
// Options.

static int breakout_check(const PufferValue *p, char *err, size_t len) {
    const long long width = p[BREAKOUT_WIDTH].i, height = p[BREAKOUT_HEIGHT].i;
    const long long row_width = p[BREAKOUT_BRICK_COLS].i * p[BREAKOUT_BRICK_WIDTH].i;
    const long long wall_bottom = BREAKOUT_WALL_TOP + p[BREAKOUT_BRICK_ROWS].i * p[BREAKOUT_BRICK_HEIGHT].i;
    const long long start_y = height / 2 - BREAKOUT_START_RISE, start_bottom = start_y + p[BREAKOUT_BALL_HEIGHT].i;
    const long long paddle_y = height - p[BREAKOUT_PADDLE_HEIGHT].i - BREAKOUT_PADDLE_GAP;
    if (row_width > width) {
        snprintf(err, len, "brick_cols x brick_width is %lld pixels, more than width=%lld", row_width, width);
    } else if (p[BREAKOUT_PADDLE_WIDTH].i > width) {
        snprintf(err, len, "paddle_width=%lld is more than width=%lld", (long long)p[BREAKOUT_PADDLE_WIDTH].i, width);
    } else if (wall_bottom > start_y) {
        snprintf(err, len, "the wall reaches down to %lld, but with height=%lld a ball starts at %lld", wall_bottom,
                 height, start_y);
    } else if (start_bottom > paddle_y) {
        snprintf(err, len, "a ball starts down to %lld, but with height=%lld the paddle begins at %lld", start_bottom,
                 height, paddle_y);
    } else if (p[BREAKOUT_INITIAL_BALL_SPEED].f > p[BREAKOUT_MAX_BALL_SPEED].f) {
        snprintf(err, len, "initial_ball_speed=%g is more than max_ball_speed=%g", p[BREAKOUT_INITIAL_BALL_SPEED].f,
                 p[BREAKOUT_MAX_BALL_SPEED].f);
    } else {
        return 0;
    }
    return 1;
}

static void breakout_spaces(const PufferValue *p, PufferSpaces *spaces) {
    // Only the last observation of a game can show a ball below the field: one frame's fall from the paddle.
    const double fall = p[BREAKOUT_MAX_BALL_SPEED].f * BREAKOUT_FRAME_S - BREAKOUT_PADDLE_GAP;
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = (int32_t)(BREAKOUT_SCALARS + p[BREAKOUT_BRICK_ROWS].i * p[BREAKOUT_BRICK_COLS].i);
    spaces->obs_low = -1.0;
    spaces->obs_high = fall > 0.0 ? 1.0 + fall / (double)p[BREAKOUT_HEIGHT].i : 1.0;
    spaces->action_kind = p[BREAKOUT_CONTINUOUS].i ? PUFFER_BOX : PUFFER_DISCRETE;
    spaces->num_heads = 1;
    spaces->head_size[0] = 3;
    spaces->agents = 1;
}

static size_t breakout_state_size(const PufferValue *p) {
    return sizeof(Breakout) + (size_t)p[BREAKOUT_BRICK_ROWS].i * sizeof(uint64_t);
}

static int breakout_points(int row) { return row < 6 ? 7 - 3 * (row / 2) : 1; }

// Sine and cosine within a quarter turn of 0, by their series to 1e-12: the same on every machine.
static void breakout_sincos(double angle, double *sine, double *cosine) {
    const double q = -angle * angle;
    double s = 1.0, c = 1.0;
    for (int k = 18; k >= 2; k -= 2) {
        s = 1.0 + s * q / (double)(k * (k + 1));
        c = 1.0 + c * q / (double)(k * (k - 1));
    }
    *sine = angle * s;
    *cosine = c;
}

static void breakout_init(void *state, const PufferValue *p, const void *shared) {
    (void)shared;
    Breakout *env = (Breakout *)state;
    const float width = (float)p[BREAKOUT_WIDTH].i, height = (float)p[BREAKOUT_HEIGHT].i;
    double sine, cosine;
    env->frameskip = (uint8_t)p[BREAKOUT_FRAMESKIP].i;
    env->continuous = (uint8_t)p[BREAKOUT_CONTINUOUS].i;
    env->rows = (uint8_t)p[BREAKOUT_BRICK_ROWS].i;
    env->cols = (uint8_t)p[BREAKOUT_BRICK_COLS].i;
    env->step_limit = p[BREAKOUT_MAX_STEPS].i > 0 ? (int32_t)p[BREAKOUT_MAX_STEPS].i : INT32_MAX;
    for (int row = 0; row < env->rows; row++) env->max_score += 2 * env->cols * breakout_points(row);
    env->score_scale = 1.0f / (float)env->max_score;
    env->inverse_width = 1.0f / width;
    env->inverse_height = 1.0f / height;
    env->ball_width = (float)p[BREAKOUT_BALL_WIDTH].i;
    env->ball_height = (float)p[BREAKOUT_BALL_HEIGHT].i;
    env->brick_width = (float)p[BREAKOUT_BRICK_WIDTH].i;
    env->brick_height = (float)p[BREAKOUT_BRICK_HEIGHT].i;
    env->inverse_brick_width = 1.0f / env->brick_width;
    env->inverse_brick_height = 1.0f / env->brick_height;
    env->wall_bottom = BREAKOUT_WALL_TOP + (float)env->rows * env->brick_height;
    env->max_ball_x = width - env->ball_width;
    env->full_paddle_width = (float)p[BREAKOUT_PADDLE_WIDTH].i;
    env->inverse_paddle_width = 1.0f / env->full_paddle_width;
    env->lost_y = height - BREAKOUT_PADDLE_GAP;
    env->paddle_y = env->lost_y - (float)p[BREAKOUT_PADDLE_HEIGHT].i;
    env->contact_y = env->paddle_y - env->ball_height;
    env->start_y = (float)(p[BREAKOUT_HEIGHT].i / 2 - BREAKOUT_START_RISE);
    env->paddle_step = (float)(p[BREAKOUT_PADDLE_SPEED].f * BREAKOUT_FRAME_S);
    env->initial_ball_speed = (float)p[BREAKOUT_INITIAL_BALL_SPEED].f;
    env->max_ball_speed = (float)p[BREAKOUT_MAX_BALL_SPEED].f;
    breakout_sincos(BREAKOUT_PI / 3.25, &sine, &cosine);
    env->launch_vx = (float)(sine * p[BREAKOUT_INITIAL_BALL_SPEED].f * BREAKOUT_FRAME_S);
    env->launch_vy = (float)(cosine * p[BREAKOUT_INITIAL_BALL_SPEED].f * BREAKOUT_FRAME_S);
    env->velocity_scale = p[BREAKOUT_PUBLISHED_VELOCITY].i
                              ? 1.0f / 512.0f
                              : (float)(1.0 / (p[BREAKOUT_MAX_BALL_SPEED].f * BREAKOUT_FRAME_S));
}

// ---------------------------------------------------------------------------------------------------------------------
// Episodes and observations.

static inline float breakout_width(const Breakout *env) { return env->max_ball_x + env->ball_width; }

static void breakout_set_paddle_width(Breakout *env, float width) {
    env->paddle_width = width;
    env->max_paddle_x = breakout_width(env) - width;
}

static void breakout_set_velocity(Breakout *env, float vx, float vy) {
    env->vx = vx;
    env->vy = vy;
    env->inverse_vx = vx != 0.0f ? 1.0f / vx : 0.0f;
    env->inverse_vy = vy != 0.0f ? 1.0f / vy : 0.0f;
}

static void breakout_new_round(Breakout *env) {
    env->fired = 0;
    env->hits = 0;
    env->ball_speed = env->initial_ball_speed;
    breakout_set_paddle_width(env, env->full_paddle_width);
    env->paddle_x = env->max_paddle_x * 0.5f;
    env->ball_x = env->max_ball_x * 0.5f;
    env->ball_y = env->start_y;
    breakout_set_velocity(env, 0.0f, 0.0f);
}

static void breakout_restore_wall(Breakout *env) {
    for (int row = 0; row < env->rows; row++) env->wall[row] = UINT64_MAX >> (64 - env->cols);
}

static inline float *breakout_obs(const Breakout *env) {
    const size_t floats = (size_t)BREAKOUT_SCALARS + (size_t)env->rows * env->cols;
    return (float *)puffer_obs(&env->head, 0, floats * sizeof(float));
}

static inline float breakout_unit(float x) { return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x; }

static void breakout_observe_scalars(const Breakout *env, float *obs) {
    obs[0] = env->paddle_x * env->inverse_width;
    obs[1] = env->paddle_y * env->inverse_height;
    obs[2] = env->ball_x * env->inverse_width;
    obs[3] = env->ball_y * env->inverse_height;
    obs[4] = breakout_unit(env->vx * env->velocity_scale);
    obs[5] = breakout_unit(env->vy * env->velocity_scale);
    obs[6] = (float)env->fired * (1.0f / BREAKOUT_BALLS);
    obs[7] = (float)env->score * env->score_scale;
    obs[8] = (float)env->balls * (1.0f / BREAKOUT_BALLS);
    obs[9] = env->paddle_width * env->inverse_paddle_width;
}

static void breakout_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    (void)agent;
    (void)mask_row;
    const Breakout *env = (const Breakout *)state;
    float *obs = (float *)obs_row;
    breakout_observe_scalars(env, obs);
    obs += BREAKOUT_SCALARS;
    for (int row = 0; row < env->rows; row++) {
        for (int col = 0; col < env->cols; col++) *obs++ = (float)(~env->wall[row] >> col & 1);
    }
}

static void breakout_reset(void *state) {
    Breakout *env = (Breakout *)state;
    env->head.fresh = 0;
    env->steps = env->score = env->lost = env->illegal = 0;
    env->balls = BREAKOUT_BALLS;
    env->over = 0;
    breakout_restore_wall(env);
    breakout_new_round(env);
    breakout_observe(env, 0, breakout_obs(env), NULL);
}

// ---------------------------------------------------------------------------------------------------------------------
// Broad phase: what can the ball touch on its way from where it is to (x, y)?
// Adding one velocity several times gives monotone coordinates, also when rounded: what the two ends leave untouched,
// every frame between them does too.

// The bricks that a box reaches: rows `first` to `last`, columns as bits. Wider by a hair, never too narrow.
typedef struct BreakoutReach {
    int first, last;
    uint64_t columns;
} BreakoutReach;

static inline BreakoutReach breakout_reach(const Breakout *env, float x, float y) {
    const float hair = 1e-3f;
    const float left = x < env->ball_x ? x : env->ball_x, right = (x > env->ball_x ? x : env->ball_x) + env->ball_width;
    const float top = y < env->ball_y ? y : env->ball_y,
                bottom = (y > env->ball_y ? y : env->ball_y) + env->ball_height;
    BreakoutReach reach;
    int from = (int)(left * env->inverse_brick_width - hair), to = (int)(right * env->inverse_brick_width + hair);
    if (from < 0) from = 0;
    if (to > env->cols - 1) to = env->cols - 1;
    reach.columns = from <= to ? (UINT64_MAX << from) & (UINT64_MAX >> (63 - to)) : 0;
    reach.first = (int)((top - BREAKOUT_WALL_TOP) * env->inverse_brick_height - hair);
    reach.last = (int)((bottom - BREAKOUT_WALL_TOP) * env->inverse_brick_height + hair);
    if (reach.first < 0) reach.first = 0;
    if (reach.last > env->rows - 1) reach.last = env->rows - 1;
    return reach;
}

static int breakout_bricks_near(const Breakout *env, float x, float y) {
    const BreakoutReach reach = breakout_reach(env, x, y);
    uint64_t bricks = 0;
    for (int row = reach.first; row <= reach.last; row++) bricks |= env->wall[row];
    return (bricks & reach.columns) != 0;
}

// 1: the way is free, to its end included, and the ball is not lost there either.
static inline int breakout_is_free(const Breakout *env, float x, float y) {
    if (!(x > 0.0f && x < env->max_ball_x)) return 0;
    const float top = y < env->ball_y ? y : env->ball_y, bottom = y > env->ball_y ? y : env->ball_y;
    if (top > env->wall_bottom && bottom < env->contact_y) return 1;
    if (top <= 0.0f || y >= env->lost_y) return 0;
    if (env->vy > 0.0f && env->ball_y <= env->contact_y && y >= env->contact_y) return 0;
    return top > env->wall_bottom || !breakout_bricks_near(env, x, y);
}

// ---------------------------------------------------------------------------------------------------------------------
// Narrow phase: the first contact within one frame, for a ball that would move freely to (x, y).

typedef enum BreakoutTarget {
    BREAKOUT_NOTHING,
    BREAKOUT_BRICK_SIDE,
    BREAKOUT_BRICK_FACE,
    BREAKOUT_SIDE,
    BREAKOUT_CEILING,
    BREAKOUT_PADDLE
} BreakoutTarget;

typedef struct BreakoutContact {
    BreakoutTarget target;
    float time, overlap;  // share of the frame, px of common edge
    float x, y;           // the ball at contact
    int row, col;         // of a brick
} BreakoutContact;

// Common length of the intervals that begin at a and b.
static inline float breakout_overlap(float a, float a_length, float b, float b_length) {
    const float end = a + a_length < b + b_length ? a + a_length : b + b_length;
    return end - (a > b ? a : b);
}

static inline int breakout_is_sooner(const BreakoutContact *contact, float time, float overlap) {
    return overlap > 0.0f && (time < contact->time || (time == contact->time && overlap > contact->overlap));
}

// The upright edge that the ball's corner meets at `edge`, and the level one below.
static inline int breakout_meet_x(const Breakout *env, float x, float edge, float start, float length,
                                  BreakoutTarget target, BreakoutContact *contact) {
    if (env->vx > 0.0f ? !(env->ball_x <= edge && x >= edge) : !(env->vx < 0.0f && env->ball_x >= edge && x <= edge)) {
        return 0;
    }
    const float time = (edge - env->ball_x) * env->inverse_vx, y = env->ball_y + env->vy * time;
    const float overlap = breakout_overlap(y, env->ball_height, start, length);
    if (!breakout_is_sooner(contact, time, overlap)) return 0;
    *contact = (BreakoutContact){target, time, overlap, edge, y, 0, 0};
    return 1;
}

static inline int breakout_meet_y(const Breakout *env, float y, float edge, float start, float length,
                                  BreakoutTarget target, BreakoutContact *contact) {
    if (env->vy > 0.0f ? !(env->ball_y <= edge && y >= edge) : !(env->vy < 0.0f && env->ball_y >= edge && y <= edge)) {
        return 0;
    }
    const float time = (edge - env->ball_y) * env->inverse_vy, x = env->ball_x + env->vx * time;
    const float overlap = breakout_overlap(x, env->ball_width, start, length);
    if (!breakout_is_sooner(contact, time, overlap)) return 0;
    *contact = (BreakoutContact){target, time, overlap, x, edge, 0, 0};
    return 1;
}

static void breakout_meet_bricks(const Breakout *env, float x, float y, BreakoutContact *contact) {
    const BreakoutReach reach = breakout_reach(env, x, y);
    const float side = env->vx > 0.0f ? -env->ball_width : env->brick_width;  // from a brick's corner to the ball's
    const float face = env->vy > 0.0f ? -env->ball_height : env->brick_height;
    for (int row = reach.first; row <= reach.last; row++) {
        const float top = BREAKOUT_WALL_TOP + (float)row * env->brick_height;
        for (uint64_t bricks = env->wall[row] & reach.columns; bricks != 0; bricks &= bricks - 1) {
            const int col = __builtin_ctzll(bricks);
            const float left = (float)col * env->brick_width;
            int met = breakout_meet_x(env, x, left + side, top, env->brick_height, BREAKOUT_BRICK_SIDE, contact);
            met |= breakout_meet_y(env, y, top + face, left, env->brick_width, BREAKOUT_BRICK_FACE, contact);
            if (met) {
                contact->row = row;
                contact->col = col;
            }
        }
    }
}

// A ball that rounding has put beyond a wall meets it at once, so that none can leave the field.
static void breakout_meet_walls(const Breakout *env, float x, float y, BreakoutContact *contact) {
    if (env->vx < 0.0f ? x <= 0.0f : env->vx > 0.0f && x >= env->max_ball_x) {
        const float edge = env->vx < 0.0f ? 0.0f : env->max_ball_x;
        const float time = fmaxf((edge - env->ball_x) * env->inverse_vx, 0.0f);
        if (breakout_is_sooner(contact, time, env->ball_height)) {
            const float contact_y = env->ball_y + env->vy * time;
            *contact = (BreakoutContact){BREAKOUT_SIDE, time, env->ball_height, edge, contact_y, 0, 0};
        }
    }
    if (env->vy < 0.0f && y <= 0.0f) {
        const float time = fmaxf(-env->ball_y * env->inverse_vy, 0.0f);
        if (breakout_is_sooner(contact, time, env->ball_width)) {
            const float contact_x = env->ball_x + env->vx * time;
            *contact = (BreakoutContact){BREAKOUT_CEILING, time, env->ball_width, contact_x, 0.0f, 0, 0};
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// One frame.

static void breakout_launch(Breakout *env) {
    const float direction = puffer_rng_below(&env->head.rng, 2) ? 1.0f : -1.0f;
    env->fired = 1;
    breakout_set_velocity(env, direction * env->launch_vx, env->launch_vy);
}

static void breakout_destroy(Breakout *env, int row, int col) {
    const int points = breakout_points(row);
    env->wall[row] &= ~(UINT64_C(1) << col);
    breakout_obs(env)[BREAKOUT_SCALARS + row * env->cols + col] = 1.0f;
    env->score += points;
    *puffer_reward(&env->head, 0) += (float)points;
    if (row < BREAKOUT_FAST_ROWS) env->ball_speed = env->max_ball_speed;
    if (env->score == env->max_score) env->over = 1;
}

static void breakout_strike(Breakout *env) {
    const double limit = BREAKOUT_MAX_ANGLE_DEG * BREAKOUT_PI / 180.0;
    const double centre = (double)(env->ball_x + 0.5f * env->ball_width);
    double angle = BREAKOUT_PI * (-0.25 + 0.5 * (centre - (double)env->paddle_x) / (double)env->paddle_width);
    double sine, cosine;
    angle = angle < -limit ? -limit : angle > limit ? limit : angle;
    breakout_sincos(angle, &sine, &cosine);
    const double speed = (double)env->ball_speed * BREAKOUT_FRAME_S;
    breakout_set_velocity(env, (float)(sine * speed), (float)(-cosine * speed));
    if (++env->hits % BREAKOUT_HITS_PER_SPEED_UP == 0) {
        env->ball_speed = fminf(env->ball_speed + BREAKOUT_SPEED_UP, env->max_ball_speed);
    }
    if (env->score == env->max_score / 2) {
        breakout_restore_wall(env);
        memset(breakout_obs(env) + BREAKOUT_SCALARS, 0, (size_t)env->rows * env->cols * sizeof(float));
    }
}

// Moves the ball to the contact; the rest of the frame's motion is dropped.
static void breakout_touch(Breakout *env, const BreakoutContact *contact) {
    env->ball_x = contact->x;
    env->ball_y = contact->y;
    if (contact->target == BREAKOUT_PADDLE) {
        breakout_strike(env);
        return;
    }
    if (contact->target == BREAKOUT_SIDE || contact->target == BREAKOUT_BRICK_SIDE) {
        env->vx = -env->vx;
        env->inverse_vx = -env->inverse_vx;
    } else {
        env->vy = -env->vy;
        env->inverse_vy = -env->inverse_vy;
    }
    if (contact->target == BREAKOUT_CEILING) {
        breakout_set_paddle_width(env, env->full_paddle_width * 0.5f);
    } else if (contact->target != BREAKOUT_SIDE) {
        breakout_destroy(env, contact->row, contact->col);
    }
}

static void breakout_move_ball(Breakout *env) {
    const float x = env->ball_x + env->vx, y = env->ball_y + env->vy;
    if (!breakout_is_free(env, x, y)) {
        BreakoutContact contact = {BREAKOUT_NOTHING, 2.0f, 0.0f, x, y, 0, 0};
        if (fminf(y, env->ball_y) <= env->wall_bottom) breakout_meet_bricks(env, x, y, &contact);
        breakout_meet_walls(env, x, y, &contact);
        if (env->vy > 0.0f) {
            breakout_meet_y(env, y, env->contact_y, env->paddle_x, env->paddle_width, BREAKOUT_PADDLE, &contact);
        }
        if (contact.target != BREAKOUT_NOTHING) {
            breakout_touch(env, &contact);
            return;
        }
    }
    env->ball_x = x;
    env->ball_y = y;
}

static void breakout_lose_ball(Breakout *env) {
    env->lost++;
    if (env->balls == 0) {
        env->over = 1;
        return;
    }
    env->balls--;
    breakout_new_round(env);
}

// Frame by frame until the step is full or the game is over.
static void breakout_frames(Breakout *env, float move) {
    for (int frame = 0; frame < env->frameskip && !env->over; frame++) {
        if (env->fired) {
            env->paddle_x = fminf(fmaxf(env->paddle_x + move, 0.0f), env->max_paddle_x);
        } else {
            breakout_launch(env);
        }
        breakout_move_ball(env);
        if (env->ball_y >= env->lost_y) breakout_lose_ball(env);
    }
    breakout_observe_scalars(env, breakout_obs(env));
}

// ---------------------------------------------------------------------------------------------------------------------
// One step.

static void breakout_finish(Breakout *env) {
    puffer_end(&env->head, 0, env->over, ((size_t)BREAKOUT_SCALARS + (size_t)env->rows * env->cols) * sizeof(float));
    float *log = puffer_log(&env->head, 0, BREAKOUT_LOG_FIELDS);
    log[BREAKOUT_LOG_SCORE] = (float)env->score;
    log[BREAKOUT_LOG_PERF] = (float)env->score * env->score_scale;
    log[BREAKOUT_LOG_RETURN] = (float)env->score;
    log[BREAKOUT_LOG_LENGTH] = (float)env->steps;
    log[BREAKOUT_LOG_ILLEGAL] = (float)env->illegal;
    log[BREAKOUT_LOG_BALLS_LOST] = (float)env->lost;
    breakout_reset(env);
}

static inline float breakout_move(Breakout *env) {
    if (env->continuous) return puffer_box(&env->head, 0, 0, 1, &env->illegal) * env->paddle_step;
    const int action = puffer_discrete(&env->head, 0, 0, 1, 3, 0, &env->illegal);
    return (float)((action == 2) - (action == 1)) * env->paddle_step;
}

// Where nothing is in the ball's way, all frames of the step are done at once. The paddle moves one way only within a
// step, so clamping it once, at the end, is the same as in every frame.
static inline void breakout_step(Breakout *env) {
    const float move = breakout_move(env);
    float x = env->ball_x, y = env->ball_y, paddle_x = env->paddle_x;
    for (int frame = 0; frame < env->frameskip; frame++) {
        x += env->vx;
        y += env->vy;
        paddle_x += move;
    }
    if (env->fired && breakout_is_free(env, x, y)) {
        float *obs = breakout_obs(env);
        env->paddle_x = fminf(fmaxf(paddle_x, 0.0f), env->max_paddle_x);
        env->ball_x = x;
        env->ball_y = y;
        obs[0] = env->paddle_x * env->inverse_width;
        obs[2] = x * env->inverse_width;
        obs[3] = y * env->inverse_height;
    } else {
        breakout_frames(env, move);
    }
    if (++env->steps >= env->step_limit || env->over) breakout_finish(env);
}

// ---------------------------------------------------------------------------------------------------------------------
// Pictures and play.

static int breakout_height(const Breakout *env) { return (int)(env->lost_y + BREAKOUT_PADDLE_GAP); }

static void breakout_draw(const void *state, PufferCanvas *canvas) {
    static const uint32_t colours[6] = {0xC84848, 0xC66C3A, 0xB47A30, 0xA2A22A, 0x48A048, 0x4248C8};
    const Breakout *env = (const Breakout *)state;
    char text[64];
    if (!puffer_canvas(canvas, (int)breakout_width(env), breakout_height(env), 60.0f / (float)env->frameskip)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    for (int row = 0; row < env->rows; row++) {
        const uint32_t colour = colours[row * 6 / env->rows];
        for (int col = 0; col < env->cols; col++) {
            if (!(env->wall[row] >> col & 1)) continue;
            puffer_rect(canvas, (float)col * env->brick_width, BREAKOUT_WALL_TOP + (float)row * env->brick_height,
                        fmaxf(env->brick_width - 1.0f, 1.0f), fmaxf(env->brick_height - 1.0f, 1.0f), colour);
        }
    }
    puffer_rect(canvas, env->paddle_x, env->paddle_y, env->paddle_width, env->lost_y - env->paddle_y, PUFFER_CYAN);
    puffer_rect(canvas, env->ball_x, env->ball_y, env->ball_width, env->ball_height, PUFFER_WHITE);
    snprintf(text, sizeof text, "SCORE %d", (int)env->score);
    puffer_text(canvas, 10.0f, 10.0f, 2, PUFFER_WHITE, text);
    snprintf(text, sizeof text, "BALLS %d", (int)env->balls);
    puffer_text(canvas, breakout_width(env) - 100.0f, 10.0f, 2, PUFFER_WHITE, text);
}

// What covers the point (x, y) in the text view.
static char breakout_at(const Breakout *env, float x, float y) {
    const int row = (int)floorf((y - BREAKOUT_WALL_TOP) * env->inverse_brick_height);
    const int col = (int)(x * env->inverse_brick_width);
    if (x >= env->ball_x && x < env->ball_x + env->ball_width && y >= env->ball_y &&
        y < env->ball_y + env->ball_height) {
        return 'o';
    }
    if (row >= 0 && row < env->rows && col < env->cols && (env->wall[row] >> col & 1)) return '#';
    if (x < env->paddle_x || x >= env->paddle_x + env->paddle_width) return ' ';
    return y >= env->paddle_y && y < env->lost_y ? '=' : ' ';
}

// A coarse picture: 36 columns, and 28 lines that each stand for 12 pixels at the default height.
static int breakout_text(const void *state, char *buf, size_t len) {
    enum { COLUMNS = 36, LINES = 28 };
    const Breakout *env = (const Breakout *)state;
    const float cell_width = breakout_width(env) / COLUMNS, cell_height = (float)breakout_height(env) / LINES;
    int size = snprintf(buf, len, "score %d  balls %d\n", (int)env->score, (int)env->balls);
    for (int line = 0; line < LINES; line++) {
        char row[COLUMNS + 1];
        for (int column = 0; column < COLUMNS; column++) {
            const float y = ((float)line + 0.5f) * cell_height;
            row[column] = breakout_at(env, ((float)column + 0.5f) * cell_width, y);
        }
        row[COLUMNS] = '\0';
        const size_t used = (size_t)size < len ? (size_t)size : len;
        size += snprintf(buf + used, len - used, "|%s|\n", row);
    }
    return size;
}

static int breakout_human(const void *state, const PufferKeys *keys, void *action) {
    const Breakout *env = (const Breakout *)state;
    const int left = keys->down[PUFFER_KEY_LEFT] || keys->down['a'];
    const int right = keys->down[PUFFER_KEY_RIGHT] || keys->down['d'];
    if (env->continuous) {
        *(float *)action = (float)(right - left);
    } else {
        *(int32_t *)action = left == right ? 0 : left ? 1 : 2;
    }
    return left || right;
}

PUFFER_ENV(breakout, Breakout, .version = 1, .params = breakout_params, .num_params = BREAKOUT_NUM_PARAMS,
           .log_fields = breakout_log_fields, .num_log_fields = BREAKOUT_LOG_FIELDS, .check = breakout_check,
           .spaces = breakout_spaces, .state_size = breakout_state_size, .init = breakout_init, .reset = breakout_reset,
           .observe = breakout_observe, .draw = breakout_draw, .text = breakout_text, .human = breakout_human);

#endif
