// Snake: hundreds of snakes in one walled world eat food and the remains of each other; whoever bites a wall or a snake
// dies. Every step each snake, in the order of its index, moves one cell; food and corpses lengthen it by one. The dead
// leave every other segment as a corpse and start anew with length 1. Rules: PufferLib 4.0 (MIT). A step has no unit of
// time.
#ifndef PUFFER_OCEAN_SNAKE_H
#define PUFFER_OCEAN_SNAKE_H

#include <puffer/draw.h>
#include <puffer/vec.h>

// Cells of the grid. A cell from SNAKE_WALL on kills.
enum { SNAKE_EMPTY, SNAKE_FOOD, SNAKE_CORPSE, SNAKE_WALL, SNAKE_COLOR };
enum { SNAKE_UP, SNAKE_DOWN, SNAKE_LEFT, SNAKE_RIGHT, SNAKE_DIRECTIONS };  // a direction ^ 1 is its opposite

#define SNAKE_NUM_COLORS 4
#define SNAKE_PERFECT 120.0f  // length that counts as perf 1
#define SNAKE_SPAWN_TRIES 64  // random cells looked at before the grid is scanned for a free one
#define SNAKE_TEXT_WIDTH 80   // cells
#define SNAKE_TEXT_HEIGHT 40

// Observation, uint8 (d, d), d = 2 vision + 1, the cells around the head, which is in the middle, row by row:
//   0 empty, 1 food, 2 corpse, 3 wall, 4..7 a snake's colour (snake 0: 7, snake i: 4 + i mod 4)
//   with relative_colors: 4 own body, 5 another snake

enum {
    SNAKE_WIDTH,
    SNAKE_HEIGHT,
    SNAKE_NUM_SNAKES,
    SNAKE_NUM_FOOD,
    SNAKE_VISION,
    SNAKE_LEAVE_CORPSE,
    SNAKE_RELATIVE_COLORS,
    SNAKE_REWARD_FOOD,
    SNAKE_REWARD_CORPSE,
    SNAKE_REWARD_DEATH,
    SNAKE_MAX_SNAKE_LENGTH,
    SNAKE_MAX_LIFE,
    SNAKE_NUM_PARAMS
};

static const PufferParam snake_params[] = {
    PUFFER_P_INT("width", 640, 6, 4096, 0, 0, "Columns of the world, walls included; at least 2 vision + 4."),
    PUFFER_P_INT("height", 360, 6, 4096, 0, 0, "Rows of the world, walls included; at least 2 vision + 4."),
    PUFFER_P_INT("num_snakes", 256, 1, 65536, 0, 0, "Snakes in one world."),
    PUFFER_P_INT("num_food", 4096, 0, 8388608, 0, 0, "Cells with food in one world; at most half of its cells."),
    PUFFER_P_INT("vision", 5, 1, 15, 0, 0, "Cells a snake sees in each direction; also the thickness of the walls."),
    PUFFER_P_BOOL("leave_corpse", 1, 0, "A dead snake leaves every other segment as a corpse."),
    PUFFER_P_BOOL("relative_colors", 0, 0, "Show the own body as 4 and others as 5, instead of four fixed colours."),
    PUFFER_P_FLOAT("reward_food", 0.1, -100, 100, 0, "Reward for eating food."),
    PUFFER_P_FLOAT("reward_corpse", 0.1, -100, 100, 0, "Reward for eating a corpse cell."),
    PUFFER_P_FLOAT("reward_death", -1.0, -100, 100, 0, "Reward for dying."),
    PUFFER_P_INT("max_snake_length", 1024, 2, 65535, 0, 0, "A snake grows to one less than this."),
    PUFFER_P_INT("max_life", 0, 0, 1000000000, 0, 0, "Steps after which a life is cut off; 0 never."),
};

// One row is logged by a snake at the end of each of its lives.
enum { SNAKE_SCORE, SNAKE_PERF, SNAKE_RETURN, SNAKE_EPISODE_LENGTH, SNAKE_ILLEGAL, SNAKE_FOOD_EATEN, SNAKE_NUM_LOG };
static const char *const snake_log_fields[] = {"score",           "perf",      "episode_return", "episode_length",
                                               "illegal_actions", "food_eaten"};

typedef struct SnakeBody {
    int32_t head, tail;  // cells
    uint32_t slot;       // of the head in the ring of moves, modulo its size
    int32_t length;      // segments
    int32_t life;        // steps since birth
    int32_t food, illegal;
    float episode_return;
} SnakeBody;

typedef struct Snake {  // one world
    PufferHead head;
    // Options.
    int32_t width, height, vision, num_snakes, num_food, max_length, max_life, leave_corpse, relative_colors;
    float reward_food, reward_corpse, reward_death;
    // Constants that follow from them.
    int32_t delta[SNAKE_DIRECTIONS];  // of a cell's index, by direction
    uint32_t ring_size;               // a power of two; slot s of a ring holds the move that led to that segment
    uint64_t rings_at, owners_at, grid_at;
    // Behind the struct: a SnakeBody per snake, a ring of ring_size bytes per snake, with relative_colors a uint16 per
    // cell with the snake that is there, and the grid, a byte per cell, row by row.
} Snake;

static inline SnakeBody *snake_bodies(const Snake *env) { return (SnakeBody *)(env + 1); }

static inline uint8_t *snake_ring(const Snake *env, int snake) {
    return (uint8_t *)env + env->rings_at + (size_t)snake * env->ring_size;
}

static inline uint16_t *snake_owners(const Snake *env) { return (uint16_t *)((uint8_t *)env + env->owners_at); }

static inline uint8_t *snake_grid(const Snake *env) { return (uint8_t *)env + env->grid_at; }

static inline uint8_t snake_color(int snake) {
    return (uint8_t)(SNAKE_COLOR + (snake == 0 ? SNAKE_NUM_COLORS - 1 : snake % SNAKE_NUM_COLORS));
}

static int64_t snake_interior(const PufferValue *p) {
    const int64_t walls = 2 * p[SNAKE_VISION].i;
    return (p[SNAKE_WIDTH].i - walls) * (p[SNAKE_HEIGHT].i - walls);
}

static int snake_check(const PufferValue *p, char *err, size_t len) {
    const long long smallest = 2 * p[SNAKE_VISION].i + 4, width = p[SNAKE_WIDTH].i, height = p[SNAKE_HEIGHT].i;
    const long long snakes = p[SNAKE_NUM_SNAKES].i, food = p[SNAKE_NUM_FOOD].i;
    if (width < smallest || height < smallest) {
        snprintf(err, len, "width=%lld and height=%lld must be at least 2*vision + 4 = %lld", width, height, smallest);
        return 1;
    }
    const long long interior = snake_interior(p);
    if (food > width * height / 2) {
        snprintf(err, len, "num_food=%lld is more than half of the %lld cells", food, width * height);
        return 1;
    }
    if (snakes * 4 + food > interior) {
        snprintf(
            err, len,
            "num_snakes=%lld and num_food=%lld need 4*num_snakes + num_food = %lld cells, %lld are inside the walls",
            snakes, food, snakes * 4 + food, interior);
        return 1;
    }
    return 0;
}

static void snake_spaces(const PufferValue *p, PufferSpaces *spaces) {
    spaces->obs_dtype = PUFFER_U8;
    spaces->obs_ndim = 2;
    spaces->obs_shape[0] = spaces->obs_shape[1] = (int32_t)(2 * p[SNAKE_VISION].i + 1);
    spaces->obs_low = 0;
    spaces->obs_high = p[SNAKE_RELATIVE_COLORS].i ? SNAKE_COLOR + 1 : SNAKE_COLOR + SNAKE_NUM_COLORS - 1;
    spaces->action_kind = PUFFER_DISCRETE;
    spaces->num_heads = 1;
    spaces->head_size[0] = SNAKE_DIRECTIONS;
    spaces->agents = (int32_t)p[SNAKE_NUM_SNAKES].i;
}

// No snake is longer than the cells inside the walls, so small worlds need small rings.
static uint32_t snake_ring_size(const PufferValue *p) {
    const int64_t interior = snake_interior(p), longest = p[SNAKE_MAX_SNAKE_LENGTH].i;
    uint32_t size = 4;
    while (size < (interior < longest ? interior : longest)) size *= 2;
    return size;
}

// Places the arrays behind the struct and returns the size of all.
static size_t snake_layout(const PufferValue *p, uint64_t *rings_at, uint64_t *owners_at, uint64_t *grid_at) {
    const size_t cells = (size_t)(p[SNAKE_WIDTH].i * p[SNAKE_HEIGHT].i), snakes = (size_t)p[SNAKE_NUM_SNAKES].i;
    *rings_at = sizeof(Snake) + snakes * sizeof(SnakeBody);
    *owners_at = *rings_at + snakes * snake_ring_size(p);
    *grid_at = *owners_at + (p[SNAKE_RELATIVE_COLORS].i ? cells * sizeof(uint16_t) : 0);
    return *grid_at + cells;
}

static size_t snake_state_size(const PufferValue *p) {
    uint64_t rings_at, owners_at, grid_at;
    return snake_layout(p, &rings_at, &owners_at, &grid_at);
}

static void snake_init(void *state, const PufferValue *p, const void *shared) {
    Snake *env = (Snake *)state;
    (void)shared;
    env->width = (int32_t)p[SNAKE_WIDTH].i;
    env->height = (int32_t)p[SNAKE_HEIGHT].i;
    env->vision = (int32_t)p[SNAKE_VISION].i;
    env->num_snakes = (int32_t)p[SNAKE_NUM_SNAKES].i;
    env->num_food = (int32_t)p[SNAKE_NUM_FOOD].i;
    env->max_length = (int32_t)p[SNAKE_MAX_SNAKE_LENGTH].i - 1;
    env->max_life = p[SNAKE_MAX_LIFE].i > 0 ? (int32_t)p[SNAKE_MAX_LIFE].i : INT32_MAX;
    env->leave_corpse = (int32_t)p[SNAKE_LEAVE_CORPSE].i;
    env->relative_colors = (int32_t)p[SNAKE_RELATIVE_COLORS].i;
    env->reward_food = (float)p[SNAKE_REWARD_FOOD].f;
    env->reward_corpse = (float)p[SNAKE_REWARD_CORPSE].f;
    env->reward_death = (float)p[SNAKE_REWARD_DEATH].f;
    env->delta[SNAKE_UP] = -env->width;
    env->delta[SNAKE_DOWN] = env->width;
    env->delta[SNAKE_LEFT] = -1;
    env->delta[SNAKE_RIGHT] = 1;
    env->ring_size = snake_ring_size(p);
    snake_layout(p, &env->rings_at, &env->owners_at, &env->grid_at);
}

// ---------------------------------------------------------------------------------------------------------------------
// Views.

// Copies the d x d cells from `from` on, `copy` bytes at a time. 2d >= copy, so what a row writes too much is
// overwritten by the next one, and only the last has to be exact; nor is anything read beyond the grid, which is at
// least d + 3 wide.
static inline void snake_copy_view(uint8_t *row, const uint8_t *from, int d, size_t stride, size_t copy) {
    for (int r = 0; r < d - 1; r++, row += d, from += stride) memcpy(row, from, copy);
    memcpy(row, from, (size_t)d);
}

static void snake_copy_relative(uint8_t *row, const Snake *env, size_t corner, int d, int snake) {
    const uint8_t *grid = snake_grid(env) + corner;
    const uint16_t *owners = snake_owners(env) + corner;
    for (int r = 0; r < d; r++, row += d, grid += env->width, owners += env->width) {
        for (int c = 0; c < d; c++) {
            const uint8_t body = owners[c] == (uint16_t)snake ? SNAKE_COLOR : SNAKE_COLOR + 1;
            row[c] = grid[c] < SNAKE_COLOR ? grid[c] : body;
        }
    }
}

static inline void snake_write_row(const Snake *env, int snake, uint8_t *row) {
    const int d = 2 * env->vision + 1;
    const size_t stride = (size_t)env->width;
    const size_t corner = (size_t)snake_bodies(env)[snake].head - (size_t)env->vision * (stride + 1);
    const uint8_t *from = snake_grid(env) + corner;
    if (env->relative_colors) {
        snake_copy_relative(row, env, corner, d, snake);
    } else if (d == 11) {
        snake_copy_view(row, from, 11, stride, 16);
    } else if (d > 16) {
        snake_copy_view(row, from, d, stride, 32);
    } else if (d >= 8) {
        snake_copy_view(row, from, d, stride, 16);
    } else if (d >= 4) {
        snake_copy_view(row, from, d, stride, 8);
    } else {
        snake_copy_view(row, from, d, stride, 4);
    }
}

static void snake_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    (void)mask_row;
    snake_write_row((const Snake *)state, agent, (uint8_t *)obs_row);
}

static inline void snake_write_rows(const Snake *env) {
    const size_t row_bytes = (size_t)(2 * env->vision + 1) * (size_t)(2 * env->vision + 1);
    uint8_t *row = (uint8_t *)puffer_obs(&env->head, 0, row_bytes);
    for (int i = 0; i < env->num_snakes; i++, row += row_bytes) snake_write_row(env, i, row);
}

// ---------------------------------------------------------------------------------------------------------------------
// Births.

static inline int snake_is_free(uint8_t tile) { return tile == SNAKE_EMPTY || tile == SNAKE_CORPSE; }

// The k-th free cell inside the walls in reading order, or -1; *count is their number if there are no more than k.
static int32_t snake_scan(const Snake *env, uint32_t k, uint32_t *count) {
    const uint8_t *grid = snake_grid(env);
    *count = 0;
    for (int32_t row = env->vision; row < env->height - env->vision; row++) {
        for (int32_t column = env->vision; column < env->width - env->vision; column++) {
            const int32_t cell = row * env->width + column;
            if (snake_is_free(grid[cell]) && (*count)++ == k) return cell;
        }
    }
    return -1;
}

// A random empty or corpse cell, or -1 in a world that has none. Each free cell is equally likely.
static int32_t snake_find_cell(Snake *env) {
    PufferRng *rng = &env->head.rng;
    const uint8_t *grid = snake_grid(env);
    const uint32_t rows = (uint32_t)(env->height - 2 * env->vision), columns = (uint32_t)(env->width - 2 * env->vision);
    for (int tries = 0; tries < SNAKE_SPAWN_TRIES; tries++) {
        const int32_t row = env->vision + (int32_t)puffer_rng_below(rng, rows);
        const int32_t cell = row * env->width + env->vision + (int32_t)puffer_rng_below(rng, columns);
        if (snake_is_free(grid[cell])) return cell;
    }
    uint32_t count;
    snake_scan(env, UINT32_MAX, &count);
    return count == 0 ? -1 : snake_scan(env, puffer_rng_below(rng, count), &count);
}

static inline void snake_occupy(Snake *env, int snake, int32_t cell) {
    snake_grid(env)[cell] = snake_color(snake);
    if (env->relative_colors) snake_owners(env)[cell] = (uint16_t)snake;
}

// There is always a cell: the rules of snake_check at a reset, the cells of the own dead body later.
static void snake_spawn(Snake *env, int snake) {
    SnakeBody *body = snake_bodies(env) + snake;
    const int32_t cell = snake_find_cell(env);
    *body = (SnakeBody){.head = cell, .tail = cell, .length = 1};
    snake_ring(env, snake)[0] = SNAKE_UP;
    snake_occupy(env, snake, cell);
}

static int snake_place_food(Snake *env) {
    const int32_t cell = snake_find_cell(env);
    if (cell >= 0) snake_grid(env)[cell] = SNAKE_FOOD;
    return cell >= 0;
}

static void snake_reset(void *state) {
    Snake *env = (Snake *)state;
    const int32_t vision = env->vision;
    uint8_t *grid = snake_grid(env);
    env->head.fresh = 0;
    memset(grid, SNAKE_WALL, (size_t)env->width * (size_t)env->height);
    for (int32_t row = vision; row < env->height - vision; row++) {
        memset(grid + (size_t)row * (size_t)env->width + vision, SNAKE_EMPTY, (size_t)(env->width - 2 * vision));
    }
    for (int i = 0; i < env->num_snakes; i++) snake_spawn(env, i);
    for (int i = 0; i < env->num_food; i++) snake_place_food(env);
    snake_write_rows(env);
}

// ---------------------------------------------------------------------------------------------------------------------
// Lives.

// Empties the tail's cell. Called after the length is what it shall be, with one segment too many on the grid.
static inline void snake_drop_tail(Snake *env, SnakeBody *body, const uint8_t *ring) {
    snake_grid(env)[body->tail] = SNAKE_EMPTY;
    const uint32_t slot = body->slot - (uint32_t)body->length + 1;
    body->tail += env->delta[ring[slot & (env->ring_size - 1)]];
}

// Clears the body from the head backwards; segments with an even number of segments left, themselves included, become
// corpses.
static void snake_remove(Snake *env, int snake) {
    SnakeBody *body = snake_bodies(env) + snake;
    const uint8_t *ring = snake_ring(env, snake);
    uint8_t *grid = snake_grid(env);
    int32_t cell = body->head;
    for (int32_t left = body->length; left > 0; left--) {
        grid[cell] = env->leave_corpse && left % 2 == 0 ? SNAKE_CORPSE : SNAKE_EMPTY;
        cell -= env->delta[ring[body->slot-- & (env->ring_size - 1)]];
    }
}

static void snake_end_life(Snake *env, int snake, int is_dead) {
    const SnakeBody *body = snake_bodies(env) + snake;
    const size_t row_bytes = (size_t)(2 * env->vision + 1) * (size_t)(2 * env->vision + 1);
    snake_write_row(env, snake, (uint8_t *)puffer_obs(&env->head, snake, row_bytes));
    puffer_end(&env->head, snake, is_dead, row_bytes);
    float *log = puffer_log(&env->head, snake, SNAKE_NUM_LOG);
    log[SNAKE_SCORE] = (float)body->length;
    log[SNAKE_PERF] = fminf((float)body->length / SNAKE_PERFECT, 1.0f);
    log[SNAKE_RETURN] = body->episode_return;
    log[SNAKE_EPISODE_LENGTH] = (float)body->life;
    log[SNAKE_ILLEGAL] = (float)body->illegal;
    log[SNAKE_FOOD_EATEN] = (float)body->food;
    snake_remove(env, snake);
    snake_spawn(env, snake);
}

static inline void snake_add_reward(Snake *env, int snake, float reward) {
    *puffer_reward(&env->head, snake) = reward;
    snake_bodies(env)[snake].episode_return += reward;
}

// The direction the snake takes: an illegal action keeps the last one, and so does a move back into the own neck.
static inline int snake_direction(const Snake *env, int snake, SnakeBody *body, const uint8_t *ring) {
    const int last = ring[body->slot & (env->ring_size - 1)];
    const int asked = puffer_discrete(&env->head, snake, 0, 1, SNAKE_DIRECTIONS, last, &body->illegal);
    return asked == (last ^ 1) && body->length > 1 ? last : asked;
}

static inline void snake_move(Snake *env, int snake) {
    SnakeBody *body = snake_bodies(env) + snake;
    uint8_t *ring = snake_ring(env, snake);
    const int direction = snake_direction(env, snake, body, ring);
    const int32_t cell = body->head + env->delta[direction];
    const uint8_t tile = snake_grid(env)[cell];
    body->life++;
    if (tile >= SNAKE_WALL) {
        snake_add_reward(env, snake, env->reward_death);
        snake_end_life(env, snake, 1);
        return;
    }
    body->head = cell;
    ring[++body->slot & (env->ring_size - 1)] = (uint8_t)direction;
    snake_occupy(env, snake, cell);
    if (tile == SNAKE_EMPTY) {
        snake_drop_tail(env, body, ring);
    } else {
        snake_add_reward(env, snake, tile == SNAKE_FOOD ? env->reward_food : env->reward_corpse);
        if (body->length < env->max_length) {
            body->length++;
        } else {
            snake_drop_tail(env, body, ring);
        }
    }
    if (tile == SNAKE_FOOD) {
        body->food++;
        if (!snake_place_food(env)) {  // a full world: the snake doesn't grow, and the food goes where its tail was
            body->length--;
            snake_drop_tail(env, body, ring);
            snake_place_food(env);
        }
    }
    if (body->life >= env->max_life) snake_end_life(env, snake, 0);
}

static inline void snake_step(Snake *env) {
    for (int i = 0; i < env->num_snakes; i++) snake_move(env, i);
    snake_write_rows(env);
}

// ---------------------------------------------------------------------------------------------------------------------
// Pictures and play.

// The whole world, or with canvas->zoom > 1 a part of it: around snake `follow`, if there is one, moved by the pan.
static void snake_draw(const void *state, PufferCanvas *canvas) {
    static const uint32_t colors[] = {PUFFER_BACKGROUND, PUFFER_RED, 0x8A6D3B, 0x35504F,
                                      0x2F9E5B,          0x4A7BD0,   0xA46FD6, PUFFER_CYAN};
    const Snake *env = (const Snake *)state;
    const int longest = env->width > env->height ? env->width : env->height, fit = 1280 / longest;
    const int pixels = longest > 2048 ? 1 : fit < 2 ? 2 : fit > 8 ? 8 : fit;
    if (!puffer_canvas(canvas, env->width * pixels, env->height * pixels, 15.0f)) return;
    const float zoom = canvas->zoom > 1.0f ? canvas->zoom : 1.0f, size = (float)pixels * zoom;
    float x = -canvas->pan_x, y = -canvas->pan_y;  // of the canvas's corner in the picture of the world
    if (zoom > 1.0f) {
        const int is_following = canvas->follow >= 0 && canvas->follow < env->num_snakes;
        const int32_t middle = env->height / 2 * env->width + env->width / 2;
        const int32_t cell = is_following ? snake_bodies(env)[canvas->follow].head : middle;
        x += ((float)(cell % env->width) + 0.5f) * size - 0.5f * (float)canvas->width;
        y += ((float)(cell / env->width) + 0.5f) * size - 0.5f * (float)canvas->height;
    }
    puffer_clear(canvas, PUFFER_BACKGROUND);
    const uint8_t *tile = snake_grid(env);
    for (int row = 0; row < env->height; row++) {
        const float top = (float)row * size - y;
        for (int column = 0; column < env->width; column++, tile++) {
            if (*tile != SNAKE_EMPTY) puffer_rect(canvas, (float)column * size - x, top, size, size, colors[*tile]);
        }
    }
}

static int32_t snake_first_shown(int32_t position, int32_t shown, int32_t size) {
    const int32_t first = position - shown / 2;
    return first < 0 ? 0 : first > size - shown ? size - shown : first;
}

// One character per cell, `@` for the head of snake 0; of a world larger than 80 x 40 the part around it.
static int snake_text(const void *state, char *buf, size_t len) {
    const Snake *env = (const Snake *)state;
    const int32_t head = snake_bodies(env)[0].head;
    const int32_t columns = env->width < SNAKE_TEXT_WIDTH ? env->width : SNAKE_TEXT_WIDTH;
    const int32_t rows = env->height < SNAKE_TEXT_HEIGHT ? env->height : SNAKE_TEXT_HEIGHT;
    const int32_t left = snake_first_shown(head % env->width, columns, env->width);
    const int32_t top = snake_first_shown(head / env->width, rows, env->height);
    size_t used = 0;
    for (int32_t row = top; row < top + rows; row++) {
        for (int32_t column = left; column <= left + columns; column++, used++) {
            const int32_t cell = row * env->width + column;
            char shown = '\n';
            if (column < left + columns) shown = cell == head ? '@' : ".*%#abcd"[snake_grid(env)[cell]];
            if (used + 1 < len) buf[used] = shown;
        }
    }
    if (len > 0) buf[used < len ? used : len - 1] = '\0';
    return (int)used;
}

// Arrows or WASD steer; without a key the snake goes straight on.
static int snake_human(const void *state, const PufferKeys *keys, void *action) {
    static const char letters[SNAKE_DIRECTIONS] = {'w', 's', 'a', 'd'};
    static const uint8_t arrows[SNAKE_DIRECTIONS] = {PUFFER_KEY_UP, PUFFER_KEY_DOWN, PUFFER_KEY_LEFT, PUFFER_KEY_RIGHT};
    const Snake *env = (const Snake *)state;
    const int snake = keys->agent;
    const uint32_t slot = snake_bodies(env)[snake].slot & (env->ring_size - 1);
    *(int32_t *)action = snake_ring(env, snake)[slot];
    for (int direction = 0; direction < SNAKE_DIRECTIONS; direction++) {
        if (!keys->down[arrows[direction]] && !keys->down[(int)letters[direction]]) continue;
        *(int32_t *)action = direction;
        return 1;
    }
    return 0;
}

PUFFER_ENV(snake, Snake, .version = 1, .params = snake_params, .num_params = SNAKE_NUM_PARAMS,
           .log_fields = snake_log_fields, .num_log_fields = SNAKE_NUM_LOG, .check = snake_check,
           .spaces = snake_spaces, .state_size = snake_state_size, .init = snake_init, .reset = snake_reset,
           .observe = snake_observe, .draw = snake_draw, .text = snake_text, .human = snake_human);

#endif
