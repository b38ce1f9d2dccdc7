/* Transformer blocks over few rows: every weight is read once, at the speed of the memory.
 *
 *   few_rows_linear   y = x Wᵀ + b
 *   encoder_blocks    self-attention within each text, feed-forward
 *   decoder_steps     the newest token of each beam: attention to its own past and to the memory, feed-forward
 *
 * Matrices have oneDNN's blocked layout: panels of 64 outputs, and in a panel the 64 weights of each input, one input
 * after the other (inputs filled up to a multiple of 16). The sums of up to 6 rows and 64 outputs stay in 24 registers.
 * Threads take panels, or heads, or rows, until none is left.
 */
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { LANES = 16, VECTORS = 4, PANEL = VECTORS * LANES, ROWS = 6, AHEAD = 8 * PANEL, MAX_KEYS = 1024 };
enum { NO_ACTIVATION, RELU, GELU };

typedef __m512 vector;
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned); /* OpenMP's GOMP_parallel */

typedef struct {
    const float *weights, *bias;
    long inputs, outputs;
} Linear;

typedef struct {
    const float *weight, *bias;
    float eps;
} Norm;

typedef struct {
    Linear qkv, out, cross_q, cross_out, up, down;
    Norm mix_norm, cross_norm, feed_norm;
    long heads, head_dim;
    float scale, cross_scale;
    int pre_norm, activation;
} Block;

typedef struct {
    Parallel parallel;
    int threads;
} Team;

/* -- work that threads share ------------------------------------------------------------------------------------- */

typedef struct Work {
    void (*do_item)(const struct Work *, long);
    long items, next;
} Work;

static void take_items(void *data) {
    Work *w = data;
    for (long item; (item = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->items;) w->do_item(w, item);
}

static void run(const Team *team, Work *w, long operations) {
    if (team->threads > 1 && w->items > 1 && operations > 1 << 14)
        team->parallel(take_items, w, (unsigned)team->threads, 0);
    else
        take_items(w);
}

/* -- functions of 16 numbers ------------------------------------------------------------------------------------- */

static inline vector all(float x) { return _mm512_set1_ps(x); }

/* exp by 2^n and a polynomial (Cephes) */
static inline vector exponential(vector x) {
    x = _mm512_max_ps(all(-87.3f), x); /* in this order nan stays nan, here and below */
    const vector n = _mm512_roundscale_ps(x * all(1.44269504f), 0);
    const vector r = x - n * all(0.693359375f) + n * all(2.12194440e-4f);
    vector p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    return _mm512_scalef_ps(p * r * r + r + all(1), n);
}

/* x (1 + erf(x / √2)) / 2, with erf as a quotient of polynomials (Eigen) */
static inline vector gelu(vector x) {
    const vector z = _mm512_min_ps(all(4), _mm512_max_ps(all(-4), x * all(0.70710678f))), s = z * z;
    vector p = all(-2.72614225801306e-10f), q = all(-1.45660718464996e-05f);
    p = p * s + all(2.77068142495902e-08f);
    p = p * s + all(-2.10102402082508e-06f);
    p = p * s + all(-5.69250639462346e-05f);
    p = p * s + all(-7.34990630326855e-04f);
    p = p * s + all(-2.95459980854025e-03f);
    p = p * s + all(-1.60960333262415e-02f);
    q = q * s + all(-2.13374055278905e-04f);
    q = q * s + all(-1.68282697438203e-03f);
    q = q * s + all(-7.37332916720468e-03f);
    q = q * s + all(-1.42647390514189e-02f);
    const vector out = all(0.5f) * x * (all(1) + z * p / q);
    return _mm512_mask_mov_ps(out, _mm512_cmp_ps_mask(z, all(-4), _CMP_EQ_OQ), all(0));
}

/* -- linear ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Work work;
    const Linear *linear;
    const float *x, *residual; /* residual: NULL, or what is added */
    float *y;
    long rows;
    int activation;
} Product;

/* `rows` is a constant wherever this is inlined, so that all loops but that over inputs unroll. */
static inline __attribute__((always_inline)) void multiply(const int rows, const Product *p, long row, long column) {
    const Linear *l = p->linear;
    const long inputs = l->inputs, outputs = l->outputs, width = outputs - column;
    const float *x = p->x + row * inputs, *w = l->weights + column * ((inputs + 15) / 16 * 16);
    vector sums[ROWS][VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) sums[r][v] = _mm512_setzero_ps();
    for (long k = 0; k < inputs; k++, w += PANEL) {
        vector weights[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            weights[v] = _mm512_loadu_ps(w + v * LANES);
            __builtin_prefetch(w + v * LANES + AHEAD);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const vector factor = all(x[r * inputs + k]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[r][v] += factor * weights[v];
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const long at = v * LANES;
        const __mmask16 inside = width >= at + LANES ? 0xffff : width > at ? (1u << (width - at)) - 1 : 0;
        const vector bias = l->bias == NULL ? all(0) : _mm512_maskz_loadu_ps(inside, l->bias + column + at);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const long place = (row + r) * outputs + column + at;
            vector out = sums[r][v] + bias;
            if (p->activation == RELU) out = _mm512_max_ps(all(0), out);
            if (p->activation == GELU) out = gelu(out);
            if (p->residual != NULL) out += _mm512_maskz_loadu_ps(inside, p->residual + place);
            _mm512_mask_storeu_ps(p->y + place, inside, out);
        }
    }
}

static void multiply_panel(const Work *work, long panel) {
    const Product *p = (const Product *)work;
    const long parts = (p->rows + ROWS - 1) / ROWS, column = panel * PANEL; /* after the first part it is in the cache */
    for (long part = 0, row = 0, rows; part < parts; part++, row += rows) {
        rows = (p->rows - row + parts - part - 1) / (parts - part);
        switch (rows) {
            case 1: multiply(1, p, row, column); break;
            case 2: multiply(2, p, row, column); break;
            case 3: multiply(3, p, row, column); break;
            case 4: multiply(4, p, row, column); break;
            case 5: multiply(5, p, row, column); break;
            default: multiply(6, p, row, column);
        }
    }
}

/* `residual` may be y itself */
static void linear(
    const Team *team, const Linear *l, const float *x, float *y, long rows, int activation, const float *residual) {
    Product p = {{multiply_panel, (l->outputs + PANEL - 1) / PANEL, 0}, l, x, residual, y, rows, activation};
    run(team, &p.work, rows * l->inputs * l->outputs);
}

void few_rows_linear(
    const Linear *l, const float *x, float *y, long rows, int activation, int threads, Parallel parallel) {
    const Team team = {parallel, threads};
    linear(&team, l, x, y, rows, activation, NULL);
}

/* -- norm -------------------------------------------------------------------------------------------------------- */

typedef struct {
    Work work;
    const Norm *norm;
    const float *x;
    float *y;
    long width;
} Norming;

static void normalise_row(const Work *work, long row) {
    const Norming *p = (const Norming *)work;
    const float *x = p->x + row * p->width;
    float *y = p->y + row * p->width;
    vector sum = all(0), squares = all(0);
    for (long c = 0; c < p->width; c += LANES) sum += _mm512_loadu_ps(x + c);
    const vector mean = all(_mm512_reduce_add_ps(sum) / p->width);
    for (long c = 0; c < p->width; c += LANES) {
        const vector d = _mm512_loadu_ps(x + c) - mean;
        squares += d * d;
    }
    const vector factor = all(1 / sqrtf(_mm512_reduce_add_ps(squares) / p->width + p->norm->eps));
    for (long c = 0; c < p->width; c += LANES) {
        const vector d = (_mm512_loadu_ps(x + c) - mean) * factor;
        _mm512_storeu_ps(y + c, d * _mm512_loadu_ps(p->norm->weight + c) + _mm512_loadu_ps(p->norm->bias + c));
    }
}

/* y may be x */
static void normalise(const Team *team, const Norm *norm, const float *x, float *y, long rows, long width) {
    Norming p = {{normalise_row, rows, 0}, norm, x, y, width};
    run(team, &p.work, rows * width);
}

/* -- attention --------------------------------------------------------------------------------------------------- */

/* The mean of the values of those keys that are allowed (NULL: all), weighted by softmax(scale q·k). */
static void attend(
    const float *q, const float *k, long key_stride, long dim_stride, const float *v, long value_stride, long keys,
    const unsigned char *allowed, long head_dim, float scale, float *out) {
    float scores[MAX_KEYS], products[MAX_KEYS];
    int slots[MAX_KEYS];
    long n = 0;
    for (long m = 0; m < keys; m++)
        if (allowed == NULL || allowed[m]) slots[n++] = (int)m;
    if (n == 0) {
        memset(out, 0, (size_t)head_dim * sizeof(float));
        return;
    }
    if (dim_stride == 1)
        for (long i = 0; i < n; i++) {
            const float *key = k + slots[i] * key_stride;
            vector sum = all(0);
            for (long d = 0; d < head_dim; d += LANES) sum += _mm512_loadu_ps(q + d) * _mm512_loadu_ps(key + d);
            scores[i] = _mm512_reduce_add_ps(sum);
        }
    else { /* the keys lie side by side */
        for (long m = 0; m < keys; m += LANES) {
            const __mmask16 inside = keys - m >= LANES ? 0xffff : (1u << (keys - m)) - 1;
            vector sum = all(0);
            for (long d = 0; d < head_dim; d++) sum += all(q[d]) * _mm512_maskz_loadu_ps(inside, k + d * dim_stride + m);
            _mm512_storeu_ps(products + m, sum);
        }
        for (long i = 0; i < n; i++) scores[i] = products[slots[i]];
    }
    float largest = scores[0];
    for (long i = 1; i < n; i++) largest = scores[i] > largest ? scores[i] : largest;
    vector total = all(0);
    for (long i = 0; i < n; i += LANES) {
        const __mmask16 inside = n - i >= LANES ? 0xffff : (1u << (n - i)) - 1;
        const vector found = exponential((_mm512_maskz_loadu_ps(inside, scores + i) - all(largest)) * all(scale));
        total = _mm512_mask_add_ps(total, inside, total, found);
        _mm512_mask_storeu_ps(scores + i, inside, found);
    }
    const vector share = all(1 / _mm512_reduce_add_ps(total));
    for (long d = 0; d < head_dim; d += LANES) {
        vector mean = all(0);
        for (long i = 0; i < n; i++) mean += all(scores[i]) * _mm512_loadu_ps(v + slots[i] * value_stride + d);
        _mm512_storeu_ps(out + d, mean * share);
    }
}

typedef struct {
    Work work;
    const Block *block;
    const float *qkv;
    float *out;
    const int *ends;     /* of the texts when they are concatenated, from 0 on; else NULL */
    const long *lengths; /* of padded texts, or NULL */
    long n;              /* rows of a padded text */
} SelfAttention;

static void attend_in_text(const Work *work, long item) {
    const SelfAttention *p = (const SelfAttention *)work;
    const long heads = p->block->heads, size = p->block->head_dim, text = item / heads, head = item % heads;
    const long stride = 3 * heads * size, start = p->ends == NULL ? text * p->n : p->ends[text];
    const long rows = p->ends == NULL ? p->n : p->ends[text + 1] - start;
    const long keys = p->lengths == NULL || p->lengths[text] > rows ? rows : p->lengths[text];
    const float *base = p->qkv + start * stride + 3 * head * size;
    for (long row = 0; row < rows; row++)
        attend(
            base + row * stride, base + size, stride, 1, base + 2 * size, stride, keys, NULL, size, p->block->scale,
            p->out + ((start + row) * heads + head) * size);
}

/* y may be x */
static void encoder_block(
    const Team *team, const Block *b, const float *x, float *y, float *scratch, long rows, long texts, long n,
    const int *ends, const long *lengths) {
    const long width = b->down.outputs, inner = b->heads * b->head_dim;
    const long widest = b->qkv.outputs > b->up.outputs ? b->qkv.outputs : b->up.outputs;
    float *wide = scratch, *mixed = wide + rows * widest, *normed = mixed + rows * inner;
    if (b->pre_norm) normalise(team, &b->mix_norm, x, normed, rows, width);
    linear(team, &b->qkv, b->pre_norm ? normed : x, wide, rows, NO_ACTIVATION, NULL);
    SelfAttention p = {{attend_in_text, texts * b->heads, 0}, b, wide, mixed, ends, lengths, n};
    run(team, &p.work, rows * inner * (rows / (texts > 0 ? texts : 1)));
    linear(team, &b->out, mixed, y, rows, NO_ACTIVATION, x);
    normalise(team, b->pre_norm ? &b->feed_norm : &b->mix_norm, y, b->pre_norm ? normed : y, rows, width);
    linear(team, &b->up, b->pre_norm ? normed : y, wide, rows, b->activation, NULL);
    linear(team, &b->down, wide, y, rows, NO_ACTIVATION, y);
    if (!b->pre_norm) normalise(team, &b->feed_norm, y, y, rows, width);
}

/* `scratch` has room for rows x (max(3 heads head_dim, hidden) + heads head_dim + width) numbers. */
void encoder_blocks(
    const Block *blocks, long count, const float *x, float *y, float *scratch, long rows, long texts, long n,
    const int *ends, const long *lengths, int threads, Parallel parallel) {
    const Team team = {parallel, threads};
    for (long i = 0; i < count; i++) encoder_block(&team, blocks + i, i ? y : x, y, scratch, rows, texts, n, ends, lengths);
}

/* -- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct {
    float *k, *v; /* inputs x heads x capacity x head_dim */
    long capacity, filled;
    const unsigned char *allowed; /* inputs x beams x capacity: the ancestors of each beam; NULL: all slots */
} Cache;

typedef struct {
    const float *k, *v; /* inputs x heads x keys x head_dim, k with any of the last two side by side */
    long keys, key_stride, dim_stride;
    const unsigned char *allowed; /* inputs x keys, or NULL */
} Memory;

typedef struct {
    Work work;
    const Block *block;
    const float *queries;
    float *out;
    long beams;
    const Cache *cache;
    const Memory *memory;
} StepAttention;

static void attend_to_past(const Work *work, long item) {
    const StepAttention *p = (const StepAttention *)work;
    const Cache *c = p->cache;
    const long heads = p->block->heads, size = p->block->head_dim, input = item / heads, head = item % heads;
    float *k = c->k + item * c->capacity * size, *v = c->v + item * c->capacity * size;
    const float *qkv = p->queries + input * p->beams * 3 * heads * size + 3 * head * size;
    for (long beam = 0; beam < p->beams; beam++) {
        const long slot = c->filled - p->beams + beam;
        memcpy(k + slot * size, qkv + beam * 3 * heads * size + size, (size_t)size * sizeof(float));
        memcpy(v + slot * size, qkv + beam * 3 * heads * size + 2 * size, (size_t)size * sizeof(float));
    }
    for (long beam = 0; beam < p->beams; beam++)
        attend(
            qkv + beam * 3 * heads * size, k, size, 1, v, size, c->filled,
            c->allowed == NULL ? NULL : c->allowed + (input * p->beams + beam) * c->capacity, size, p->block->scale,
            p->out + ((input * p->beams + beam) * heads + head) * size);
}

static void attend_to_memory(const Work *work, long item) {
    const StepAttention *p = (const StepAttention *)work;
    const Memory *m = p->memory;
    const long heads = p->block->heads, size = p->block->head_dim, input = item / heads, head = item % heads;
    const long at = item * m->keys * size;
    for (long beam = 0; beam < p->beams; beam++) {
        const long place = ((input * p->beams + beam) * heads + head) * size;
        attend(
            p->queries + place, m->k + at, m->key_stride, m->dim_stride, m->v + at, size, m->keys,
            m->allowed == NULL ? NULL : m->allowed + input * m->keys, size, p->block->cross_scale, p->out + place);
    }
}

/* y may be x */
static void decoder_step(
    const Team *team, const Block *b, const float *x, float *y, float *scratch, long inputs, long beams,
    const Cache *cache, const Memory *memory) {
    const long rows = inputs * beams, width = b->down.outputs, inner = b->heads * b->head_dim;
    const long widest = b->qkv.outputs > b->up.outputs ? b->qkv.outputs : b->up.outputs;
    float *wide = scratch, *mixed = wide + rows * widest, *normed = mixed + rows * inner;
    StepAttention p = {{attend_to_past, inputs * b->heads, 0}, b, wide, mixed, beams, cache, memory};
    if (b->pre_norm) normalise(team, &b->mix_norm, x, normed, rows, width);
    linear(team, &b->qkv, b->pre_norm ? normed : x, wide, rows, NO_ACTIVATION, NULL);
    run(team, &p.work, rows * inner * cache->filled);
    linear(team, &b->out, mixed, y, rows, NO_ACTIVATION, x);
    normalise(team, b->pre_norm ? &b->cross_norm : &b->mix_norm, y, b->pre_norm ? normed : y, rows, width);
    linear(team, &b->cross_q, b->pre_norm ? normed : y, wide, rows, NO_ACTIVATION, NULL);
    p.work = (Work){attend_to_memory, inputs * b->heads, 0};
    run(team, &p.work, rows * inner * memory->keys);
    linear(team, &b->cross_out, mixed, y, rows, NO_ACTIVATION, y);
    normalise(team, b->pre_norm ? &b->feed_norm : &b->cross_norm, y, b->pre_norm ? normed : y, rows, width);
    linear(team, &b->up, b->pre_norm ? normed : y, wide, rows, b->activation, NULL);
    linear(team, &b->down, wide, y, rows, NO_ACTIVATION, y);
    if (!b->pre_norm) normalise(team, &b->feed_norm, y, y, rows, width);
}

/* `scratch` as for encoder_blocks */
void decoder_steps(
    const Block *blocks, long count, const float *x, float *y, float *scratch, long inputs, long beams,
    const Cache *caches, const Memory *memories, int threads, Parallel parallel) {
    const Team team = {parallel, threads};
    for (long i = 0; i < count; i++)
        decoder_step(&team, blocks + i, i ? y : x, y, scratch, inputs, beams, caches + i, memories + i);
}
