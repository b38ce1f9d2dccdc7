/* y = x Wᵀ + b for few rows of x: every weight is read once, at the speed of the memory.
 *
 * W has oneDNN's blocked layout: panels of 64 outputs, and in a panel the 64 weights of each input, one input after the
 * other. The sums of up to 6 rows and 64 outputs stay in 24 registers. Threads take panels until none is left.
 */
#include <stddef.h>

enum { PANEL = 64, LANES = 16, VECTORS = PANEL / LANES, ROWS = 6, AHEAD = 512 };

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

typedef struct {
    const float *x, *weights, *bias;
    float *y;
    long rows, inputs, padded_inputs, outputs, next;
} Product;

/* `rows` is a constant wherever this is inlined, so that all loops but that over inputs unroll. */
static inline __attribute__((always_inline)) void multiply(
    const int rows, const Product *p, const float *x, const float *w, const float *bias, float *y, long width) {
    vector sums[ROWS][VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) sums[r][v] = (vector){0};
    for (long k = 0; k < p->inputs; k++, w += PANEL) {
        vector weights[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            weights[v] = *(const vector *)(w + v * LANES);
            __builtin_prefetch(w + v * LANES + AHEAD);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const float factor = x[r * p->inputs + k];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[r][v] += factor * weights[v];
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        float row[PANEL];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) *(vector *)(row + v * LANES) = sums[r][v];
        for (long n = 0; n < width; n++) y[r * p->outputs + n] = bias == NULL ? row[n] : row[n] + bias[n];
    }
}

static void take_panels(void *data) {
    Product *p = data;
    for (;;) {
        const long panel = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED), n = panel * PANEL;
        if (n >= p->outputs) return;
        const long width = p->outputs - n < PANEL ? p->outputs - n : PANEL;
        const float *w = p->weights + n * p->padded_inputs, *bias = p->bias == NULL ? NULL : p->bias + n;
        const long parts = (p->rows + ROWS - 1) / ROWS; /* of nearly equal size: the panel is in the cache by then */
        for (long part = 0, done = 0; part < parts; part++) {
            const long rows = (p->rows - done + parts - part - 1) / (parts - part);
            const float *x = p->x + done * p->inputs;
            float *y = p->y + done * p->outputs + n;
            switch (rows) {
                case 1: multiply(1, p, x, w, bias, y, width); break;
                case 2: multiply(2, p, x, w, bias, y, width); break;
                case 3: multiply(3, p, x, w, bias, y, width); break;
                case 4: multiply(4, p, x, w, bias, y, width); break;
                case 5: multiply(5, p, x, w, bias, y, width); break;
                default: multiply(6, p, x, w, bias, y, width);
            }
            done += rows;
        }
    }
}

/* `parallel` is OpenMP's GOMP_parallel, of the library that PyTorch runs its threads with. */
void few_rows_linear(
    const float *x, const float *weights, const float *bias, float *y, long rows, long inputs, long padded_inputs,
    long outputs, int threads, void (*parallel)(void (*)(void *), void *, unsigned, unsigned)) {
    Product p = {x, weights, bias, y, rows, inputs, padded_inputs, outputs, 0};
    if (threads > 1)
        parallel(take_panels, &p, (unsigned)threads, 0);
    else
        take_panels(&p);
}
