/* What a step of a text does between its products, for a token or a few: norms, rotations, one query's attention.

   As torch calls, each of these is three to six kernels, which for so few numbers cost nothing but their launch.
   clearhead/ops/step.py calls them; the plain forms in norms.py, positions.py and attention.py are the truth. */

#ifndef T  /* what all types have in common; then this file is read once more for each of them */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, WIDE = 64 };  /* numbers summed side by side */
enum { TILE = 16 };              /* keys whose numbers stay in the nearest cache while all queries pass by */
enum { LARGE = 65536 };          /* numbers from which on a norm is shared by threads */
enum { LONG = 1 << 18 };         /* products from which on attention is */

typedef uint16_t bf16;

static inline float float_of(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* To the nearest, ties to even, as torch rounds. NaN stays NaN. */
static inline bf16 rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return x != x ? 0x7fc0 : (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* a b + c, rounded once where the processor does that, as torch does then. */
static inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline float sum_of(const float *lanes) {
    float eight[8], four[4];
    for (int i = 0; i < 8; i++) eight[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++) four[i] = eight[i] + eight[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static inline float dot(const float *a, const float *b, int64_t n) {
    float wide[WIDE] = {0}, lanes[LANES] = {0}, rest = 0.0f;
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        for (int j = 0; j < WIDE; j++) wide[j] = fused(a[i + j], b[i + j], wide[j]);
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] = fused(a[i + j], b[i + j], lanes[j]);
    for (; i < n; i++) rest += a[i] * b[i];
    for (int j = 0; j < LANES; j++)
        lanes[j] += (wide[j] + wide[j + LANES]) + (wide[j + 2 * LANES] + wide[j + 3 * LANES]);
    return sum_of(lanes) + rest;
}

/* mix += weights[s] * values[s] for n rows of values. */
static inline void add(float *mix, const float *weights, const float *values, int64_t n, int64_t width) {
    int64_t i = 0;
    for (; i + WIDE <= width; i += WIDE) {
        float sums[WIDE];
        memcpy(sums, mix + i, sizeof sums);
        for (int64_t s = 0; s < n; s++)
            for (int j = 0; j < WIDE; j++) sums[j] = fused(weights[s], values[s * width + i + j], sums[j]);
        memcpy(mix + i, sums, sizeof sums);
    }
    for (int64_t s = 0; s < n && i < width; s++)
        for (int64_t j = i; j < width; j++) mix[j] = fused(weights[s], values[s * width + j], mix[j]);
}

/* exp(x) for x <= 0 to 2e-7: the power of two apart, a polynomial for the rest; the compiler makes vectors of it. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = __builtin_floorf(x * 1.44269504f + 0.5f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

/* Scores become exponentials below the greatest; that one, and their sum. In lanes: compilers keep the order of sums. */
static inline void soften(float *scores, int64_t n, float *most_and_sum) {
    float most[LANES], sums[LANES] = {0};
    int64_t whole = n - n % LANES;
    for (int j = 0; j < LANES; j++) most[j] = scores[0];
    for (int64_t s = 0; s < whole; s += LANES)
        for (int j = 0; j < LANES; j++) most[j] = scores[s + j] > most[j] ? scores[s + j] : most[j];
    for (int64_t s = whole; s < n; s++) most[0] = scores[s] > most[0] ? scores[s] : most[0];
    for (int j = 1; j < LANES; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    const float greatest = most[0];
    for (int64_t s = 0; s < n; s++) scores[s] = exponential(scores[s] - greatest);
    for (int64_t s = 0; s < whole; s += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += scores[s + j];
    for (int64_t s = whole; s < n; s++) sums[0] += scores[s];
    most_and_sum[0] = greatest, most_and_sum[1] = sum_of(sums);
}

/* What is known of some of a query's keys: the greatest score, the sum of exponentials below it, the values' mix. */
#define PART(width) ((width) + 2)

/* The parts of one query, `step` numbers from one to the next, as one answer in the first. */
static void join(float *parts, int64_t n, int64_t step, int64_t width) {
    float most = parts[0], sum = 0.0f, *mix = parts + 2;
    for (int64_t i = 1; i < n; i++)
        if (parts[i * step + 1] > 0.0f && parts[i * step] > most) most = parts[i * step];
    for (int64_t i = 0; i < n; i++) {
        const float *part = parts + i * step;
        float share = part[1] == 0.0f ? 0.0f : expf(part[0] - most);
        sum += share * part[1];
        for (int64_t j = 0; share != 0.0f && j < width; j++) mix[j] = (i ? mix[j] : 0.0f) + share * part[2 + j];
    }
    for (int64_t j = 0; j < width; j++) mix[j] /= sum;
}

#define T float
#define NAME(of) of##_float32
#define OF(x) (x)
#define TO(x) (x)
#include "step.c"
#undef T
#undef NAME
#undef OF
#undef TO

#define T bf16
#define NAME(of) of##_bfloat16
#define OF(x) float_of(x)
#define TO(x) rounded(x)
#define IN_PARTS
#include "step.c"

#else

/* Numbers as float32: where they are, or put into `room`. */
static inline const float *NAME(floats)(const T *x, float *room, int64_t n) {
#ifdef IN_PARTS
    for (int64_t i = 0; i < n; i++) room[i] = OF(x[i]);
    return room;
#else
    (void)room, (void)n;
    return x;
#endif
}

/* y = x / sqrt(mean(x^2) + eps) * scale for n rows of d numbers. */
void NAME(rms_norm)(const T *all_x, const float *scale, T *all_y, int64_t n, int64_t d, double eps, int round_first,
                    int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (n * d > LARGE)
    for (int64_t row = 0; row < n; row++) {
        const T *x = all_x + row * d;
        T *y = all_y + row * d;
        float lanes[LANES] = {0}, rest = 0.0f;
        int64_t i = 0;
        for (; i + LANES <= d; i += LANES)
            for (int j = 0; j < LANES; j++) lanes[j] = fused(OF(x[i + j]), OF(x[i + j]), lanes[j]);
        for (; i < d; i++) rest += OF(x[i]) * OF(x[i]);
        float inverse = 1.0f / sqrtf((sum_of(lanes) + rest) / (float)d + (float)eps);
        if (round_first)
            for (i = 0; i < d; i++) y[i] = TO(OF(TO(OF(x[i]) * inverse)) * scale[i]);
        else
            for (i = 0; i < d; i++) y[i] = TO(OF(x[i]) * inverse * scale[i]);
    }
}

/* x (n, heads, width), of which the first `turned` dimensions are; the tables of row r begin at r * step. */
void NAME(rotate)(const T *x, const T *cos, const T *sin, T *y, int64_t n, int64_t heads, int64_t width, int64_t turned,
                  int64_t step, int interleaved) {
    int64_t half = turned / 2;
    for (int64_t row = 0; row < n; row++, cos += step, sin += step)
        for (int64_t head = 0; head < heads; head++, x += width, y += width) {
            if (interleaved)
                for (int64_t i = 0; i < turned; i++)
                    y[i] = TO(fused(OF(x[i ^ 1]), OF(sin[i]), OF(TO(OF(x[i]) * OF(cos[i])))));
            else {
                for (int64_t i = 0; i < half; i++)
                    y[i] = TO(fused(OF(x[i + half]), OF(sin[i]), OF(TO(OF(x[i]) * OF(cos[i])))));
                for (int64_t i = half; i < turned; i++)
                    y[i] = TO(fused(OF(x[i - half]), OF(sin[i]), OF(TO(OF(x[i]) * OF(cos[i])))));
            }
            for (int64_t i = turned; i < width; i++) y[i] = x[i];
        }
}

/* Keys first to last of one group against its r queries: each query's part. */
static void NAME(part)(const float *q, const T *k, const T *v, float *scores, float *room, float *parts, int64_t r,
                       int64_t width, int64_t first, int64_t last) {
    int64_t n = last - first;
    for (int64_t from = 0; from < n; from += TILE) {
        int64_t m = n - from < TILE ? n - from : TILE;
        const float *keys = NAME(floats)(k + (first + from) * width, room, m * width);
        for (int64_t h = 0; h < r; h++)
            for (int64_t s = 0; s < m; s++) scores[h * n + from + s] = dot(q + h * width, keys + s * width, width);
    }
    for (int64_t h = 0; h < r; h++) {
        float *part = parts + h * PART(width);
        soften(scores + h * n, n, part);
        memset(part + 2, 0, width * sizeof(float));
    }
    for (int64_t from = 0; from < n; from += TILE) {
        int64_t m = n - from < TILE ? n - from : TILE;
        const float *values = NAME(floats)(v + (first + from) * width, room, m * width);
        for (int64_t h = 0; h < r; h++) add(parts + h * PART(width) + 2, scores + h * n + from, values, m, width);
    }
}

/* softmax(scale q k^T) v for one query a row: q, z (n, groups * r, width), keys and values (n, groups, s, width) with
   `of_row` and `of_group` numbers from one row, one group, to the next. Returns 1 where there is no memory. */
int NAME(attend)(const T *q, const T *k, const T *v, T *z, int64_t n, int64_t groups, int64_t r, int64_t s,
                 int64_t width, int64_t of_row, int64_t of_group, double scale, int threads) {
    int64_t pairs = n * groups, cuts = 1;
    if (pairs * r * s * width < LONG) threads = 1;
    while (cuts * pairs % threads && cuts < threads) cuts++;
    int64_t cut = (s + cuts - 1) / cuts, tasks = pairs * cuts, step = r * PART(width), own = (r + TILE) * width + r * cut;
    float *room = malloc(sizeof(float) * (tasks * step + threads * own)), *parts = room + threads * own;
    if (room == NULL) return 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t share = 0; share < threads; share++) {
        float *query = room + share * own, *spare = query + r * width, *scores = spare + TILE * width;
        for (int64_t task = share * tasks / threads; task < (share + 1) * tasks / threads; task++) {
            int64_t pair = task / cuts, first = task % cuts * cut, last = first + cut < s ? first + cut : s;
            int64_t at = pair / groups * of_row + pair % groups * of_group;
            float *mine = parts + task * step;
            if (first >= last)
                for (int64_t h = 0; h < r; h++) mine[h * PART(width) + 1] = 0.0f;
            else {
                for (int64_t i = 0; i < r * width; i++) query[i] = OF(q[pair * r * width + i]) * (float)scale;
                NAME(part)(query, k + at, v + at, scores, spare, mine, r, width, first, last);
            }
        }
    }
    for (int64_t pair = 0; pair < pairs; pair++)
        for (int64_t h = 0; h < r; h++, z += width) {
            float *first = parts + pair * cuts * step + h * PART(width);
            join(first, cuts, step, width);
            for (int64_t i = 0; i < width; i++) z[i] = TO(first[2 + i]);
        }
    free(room);
    return 0;
}

#endif
