/* Products with weights that stay in GGUF's blocks: y = x W^T, read once, as few bytes as the file has.

   clearhead/ops/quantised.py is the truth this is held to, and calls it; clearhead/native.py compiles it.

   A weight is a * q - b: q unsigned, a and b one number a group of 16 or 32 weights. The activations of a group of 32
   become integers of 21 bits times one scale, cut into three planes of signed bytes, x = s (65536 u + 256 v + w), so that
   the processor's product of bytes does the work, four at a time, exactly: u, v and w give one sum of 32 bits. What is
   rounded is 2.4e-7 of the group's largest, about what a sum of float32 loses. (With one plane, as is usual, it would be
   4e-3, and the tokens others than those of the weights as they are.) Then, for a group, y += a s dot - b s sum(x). */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(ANY_PROCESSOR)
#define VNNI 1
#include <immintrin.h>
#endif

enum { Q4_0 = 2, Q5_0 = 6, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 };  /* GGML's numbers */
enum { PAIR = 64 };           /* weights that are multiplied at a time: two groups */
enum { WIDE = 4 };            /* rows of x whose sums are in registers while a row of W passes */
enum { TILE = 16 };           /* rows of W that stay in the nearest cache while all rows of x pass by */
#define UNROLLED _Pragma("GCC unroll 4")

static inline float half(const uint8_t *at) {
    _Float16 value;
    memcpy(&value, at, 2);
    return (float)value;
}

static inline int64_t block_of(int kind) { return kind >= Q4_K ? 256 : 32; }

static inline int64_t block_bytes(int kind) {
    switch (kind) {
    case Q4_0: return 18;
    case Q5_0: return 22;
    case Q8_0: return 34;
    case Q4_K: return 144;
    case Q5_K: return 176;
    default: return 210;
    }
}

/* The eight scales and minima of six bits of a Q4_K or Q5_K block. */
static inline void six_bits(const uint8_t *packed, uint8_t scales[8], uint8_t minima[8]) {
    uint32_t a, b, c;
    memcpy(&a, packed, 4), memcpy(&b, packed + 4, 4), memcpy(&c, packed + 8, 4);
    uint32_t words[4] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | ((a >> 2) & 0x30303030),
                         b & 0x3f3f3f3f, ((c >> 4) & 0x0f0f0f0f) | ((b >> 2) & 0x30303030)};
    memcpy(scales, words, 8), memcpy(minima, words + 2, 8);
}

static inline int shift_of(int kind) {
    switch (kind) {
    case Q4_0: return 8;
    case Q5_0: return 16;
    case Q8_0: return 128;
    case Q6_K: return 32;
    default: return 0;
    }
}

/* The weights of a block as floats, bit for bit as clearhead/ops/quantised.py has them. */
static inline __attribute__((always_inline)) void floats_of(int kind, const uint8_t *block, float *out) {
    if (kind < Q4_K) {
        const float d = half(block);
        uint32_t fifth = 0;
        if (kind == Q5_0) memcpy(&fifth, block + 2, 4);
        const uint8_t *q = block + block_bytes(kind) - (kind == Q8_0 ? 32 : 16);
        for (int i = 0; i < 16; i++) {
            int low = kind == Q8_0 ? (int8_t)q[i] : (q[i] & 15) + (int)(fifth >> i & 1) * 16 - shift_of(kind);
            int high = kind == Q8_0 ? (int8_t)q[16 + i] : (q[i] >> 4) + (int)(fifth >> (16 + i) & 1) * 16 - shift_of(kind);
            out[i] = (float)low * d;
            out[16 + i] = (float)high * d;
        }
    } else if (kind == Q6_K) {
        const float d = half(block + 208);
        for (int part = 0; part < 8; part++) {
            const int quarter = part % 4;
            const uint8_t *low = block + 64 * (part / 4) + 32 * (part % 2), *top = block + 128 + 32 * (part / 4);
            for (int h = 0; h < 2; h++) {
                const float scale = (float)(int8_t)block[192 + 2 * part + h] * d;
                for (int i = 16 * h; i < 16 * h + 16; i++) {
                    int q = (low[i] >> (quarter < 2 ? 0 : 4) & 15) + (top[i] >> (2 * quarter) & 3) * 16 - 32;
                    out[part * 32 + i] = (float)q * scale;
                }
            }
        }
    } else {
        uint8_t six[8], least[8];
        six_bits(block + 4, six, least);
        const float d = half(block), m = half(block + 2);
        const uint8_t *q = block + (kind == Q4_K ? 16 : 48);
        for (int g = 0; g < 8; g++) {
            const float scale = (float)six[g] * d, minimum = (float)least[g] * m;
            for (int i = 0; i < 32; i++) {
                int low = g % 2 ? q[g / 2 * 32 + i] >> 4 : q[g / 2 * 32 + i] & 15;
                if (kind == Q5_K) low += (block[16 + i] >> g & 1) * 16;
                out[g * 32 + i] = (float)low * scale - minimum;
            }
        }
    }
}

#ifdef VNNI

/* 64 activations as the product wants them. */
typedef struct {
    int8_t u[PAIR], v[PAIR], w[PAIR];
    int32_t sums[16];  /* of every four integers */
    float scales[16];  /* that every four are to be multiplied by: eight times each group's */
} Activations;

#define LARGEST 2097151.0f /* of an integer: 255 * 4 of them still fit into 32 bits */

static void prepare_row(const float *x, int64_t n_pairs, Activations *out) {
    for (int64_t p = 0; p < n_pairs; p++, x += PAIR, out++) {
        int32_t whole[PAIR];
        for (int g = 0; g < 2; g++) {
            float largest = 0;
            int finite = 1;
            for (int i = 0; i < 32; i++) {
                largest = fmaxf(largest, fabsf(x[g * 32 + i]));
                finite &= fabsf(x[g * 32 + i]) <= FLT_MAX;
            }
            /* What is not finite makes all of its group NaN: no integer stands for it. */
            float scale = finite ? largest / LARGEST : NAN, inverse = finite && largest > 0 ? LARGEST / largest : 0;
            for (int i = 0; i < 32; i++) whole[g * 32 + i] = finite ? (int32_t)rintf(x[g * 32 + i] * inverse) : 0;
            for (int i = 0; i < 8; i++) out->scales[g * 8 + i] = scale;
        }
        for (int i = 0; i < PAIR; i++) {
            int32_t above = (whole[i] + 128) >> 8, top = (above + 128) >> 8;
            out->u[i] = (int8_t)top;
            out->v[i] = (int8_t)(above - 256 * top);
            out->w[i] = (int8_t)(whole[i] - 256 * above);
        }
        for (int i = 0; i < 16; i++)
            out->sums[i] = whole[4 * i] + whole[4 * i + 1] + whole[4 * i + 2] + whole[4 * i + 3];
    }
}

static inline __m512i two(const uint8_t *first, const uint8_t *second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)first)),
                              _mm256_loadu_si256((const __m256i *)second), 1);
}

/* 32 bytes: their low halves, then their high halves. */
static inline __m512i halves(const uint8_t *bytes) {
    __m256i all = _mm256_loadu_si256((const __m256i *)bytes);
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(all), _mm256_srli_epi16(all, 4), 1);
    return _mm512_and_si512(both, _mm512_set1_epi8(15));
}

/* Twice 16 bytes: of each the low halves, then the high halves. */
static inline __m512i halves_of_two(const uint8_t *first, const uint8_t *second) {
    __m128i a = _mm_loadu_si128((const __m128i *)first), b = _mm_loadu_si128((const __m128i *)second);
    __m512i all = _mm512_inserti32x4(_mm512_castsi128_si512(a), _mm_srli_epi16(a, 4), 1);
    all = _mm512_inserti32x4(_mm512_inserti32x4(all, b, 2), _mm_srli_epi16(b, 4), 3);
    return _mm512_and_si512(all, _mm512_set1_epi8(15));
}

static inline __m512 two_scales(float first, float second) {
    return _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(first), _mm512_set1_ps(second));
}

/* Sixteen integers as floats times d. */
static inline __m512 times(__m512i integers, float d) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(integers), _mm512_set1_ps(d));
}

/* What the groups of a block of 256 weights are multiplied by, and less. */
typedef struct {
    __m512 scales, minima;
} Groups;

static inline __attribute__((always_inline)) Groups groups_of(int kind, const uint8_t *block) {
    Groups g;
    if (kind == Q6_K) {
        __m128i sixteen = _mm_loadu_si128((const __m128i *)(block + 192));
        g.scales = times(_mm512_cvtepi8_epi32(sixteen), half(block + 208));
    } else {
        uint8_t both[16];
        six_bits(block + 4, both, both + 8);
        __m512i sixteen = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)both));
        g.scales = times(sixteen, half(block));
        g.minima = times(sixteen, half(block + 2));
    }
    return g;
}

/* Weights 64 p to 64 p + 63 of a row as unsigned bytes, and what every four are multiplied by and less. */
static inline __attribute__((always_inline)) __m512i unpack(int kind, const uint8_t *row, int64_t p, Groups *groups,
                                                            __m512 *scales, __m512 *minima) {
    const int64_t bytes = block_bytes(kind);
    if (kind < Q4_K) {
        const uint8_t *a = row + 2 * p * bytes, *b = a + bytes;
        *scales = two_scales(half(a), half(b));
        if (kind == Q8_0) return _mm512_xor_si512(two(a + 2, b + 2), _mm512_set1_epi8((char)128));
        if (kind == Q4_0) return halves_of_two(a + 2, b + 2);
        uint32_t fifth[2];
        memcpy(fifth, a + 2, 4), memcpy(fifth + 1, b + 2, 4);
        __m512i low = halves_of_two(a + 6, b + 6);
        return _mm512_mask_add_epi8(low, fifth[0] | (uint64_t)fifth[1] << 32, low, _mm512_set1_epi8(16));
    }
    const uint8_t *block = row + p / 4 * bytes;
    const int j = p % 4;
    if (j == 0) *groups = groups_of(kind, block);
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    if (kind == Q6_K) {
        __m256i high = _mm256_loadu_si256((const __m256i *)(block + 128 + 32 * (j / 2)));
        __m512i q = _mm512_loadu_si512(block + 64 * (j / 2));
        q = _mm512_srl_epi16(q, _mm_cvtsi32_si128(4 * (j % 2)));
        high = _mm256_srl_epi16(high, _mm_cvtsi32_si128(4 * (j % 2)));
        __m512i top = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_slli_epi16(high, 4)),
                                         _mm256_slli_epi16(high, 2), 1);
        *scales = _mm512_permutexvar_ps(_mm512_add_epi32(_mm512_srli_epi32(lane, 2), _mm512_set1_epi32(4 * j)),
                                        groups->scales);
        return _mm512_or_si512(_mm512_and_si512(q, _mm512_set1_epi8(15)), _mm512_and_si512(top, _mm512_set1_epi8(48)));
    }
    const __m512i group = _mm512_add_epi32(_mm512_srli_epi32(lane, 3), _mm512_set1_epi32(2 * j));
    *scales = _mm512_permutexvar_ps(group, groups->scales);
    *minima = _mm512_permutexvar_ps(_mm512_add_epi32(group, _mm512_set1_epi32(8)), groups->minima);
    __m512i low = halves(block + (kind == Q4_K ? 16 : 48) + 32 * j);
    if (kind == Q4_K) return low;
    __m256i fifth = _mm256_loadu_si256((const __m256i *)(block + 16));
    __mmask64 mask = _mm256_test_epi8_mask(fifth, _mm256_set1_epi8((char)(1 << (2 * j))))
                   | (uint64_t)_mm256_test_epi8_mask(fifth, _mm256_set1_epi8((char)(2 << (2 * j)))) << 32;
    return _mm512_mask_add_epi8(low, mask, low, _mm512_set1_epi8(16));
}

/* A row of W with `n` rows of x. */
static inline __attribute__((always_inline)) void row_product(int kind, const uint8_t *row, int64_t n_pairs,
                                                              const Activations *x, int n, float *y, int64_t n_out) {
    __m512 sum[WIDE], scales, minima;
    Groups groups;
    UNROLLED for (int r = 0; r < n; r++) sum[r] = _mm512_setzero_ps();
    for (int64_t p = 0; p < n_pairs; p++) {
        const __m512i q = unpack(kind, row, p, &groups, &scales, &minima);
        UNROLLED for (int r = 0; r < n; r++) {
            const Activations *a = x + r * n_pairs + p;
            const __m512i sums = _mm512_loadu_si512(a->sums);
            const __m512 x_scales = _mm512_loadu_ps(a->scales);
            __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q, _mm512_loadu_si512(a->u));
            dot = _mm512_dpbusd_epi32(_mm512_slli_epi32(dot, 8), q, _mm512_loadu_si512(a->v));
            dot = _mm512_dpbusd_epi32(_mm512_slli_epi32(dot, 8), q, _mm512_loadu_si512(a->w));
            if (shift_of(kind)) dot = _mm512_sub_epi32(dot, _mm512_slli_epi32(sums, __builtin_ctz(shift_of(kind))));
            sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scales, x_scales), sum[r]);
            if (!shift_of(kind))
                sum[r] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(minima, x_scales), sum[r]);
        }
    }
    UNROLLED for (int r = 0; r < n; r++) y[r * n_out] = _mm512_reduce_add_ps(sum[r]);
}

#else

typedef struct {
    float x[PAIR];
} Activations;

static void prepare_row(const float *x, int64_t n_pairs, Activations *out) { memcpy(out, x, n_pairs * sizeof *out); }

/* A row of W with `n` rows of x, on any processor: the compiler finds the vectors. */
static inline __attribute__((always_inline)) void row_product(int kind, const uint8_t *row, int64_t n_pairs,
                                                              const Activations *x, int n, float *y, int64_t n_out) {
    float parts[WIDE][16] = {{0}}, weights[256];
    const int64_t block = block_of(kind), n_blocks = n_pairs * PAIR / block;
    for (int64_t b = 0; b < n_blocks; b++) {
        floats_of(kind, row + b * block_bytes(kind), weights);
        for (int r = 0; r < n; r++) {
            const float *part = x[r * n_pairs].x + b * block;
            for (int i = 0; i < block; i += 16)
                for (int k = 0; k < 16; k++) parts[r][k] += weights[i + k] * part[i + k];
        }
    }
    for (int r = 0; r < n; r++) {
        float sum = 0;
        for (int k = 0; k < 16; k++) sum += parts[r][k];
        y[r * n_out] = sum;
    }
}

#endif

/* A few rows of W, which stay in the nearest cache, with all rows of x. */
static inline __attribute__((always_inline)) void tile(int kind, const uint8_t *w, int64_t rows, int64_t row_bytes,
                                                       int64_t n_pairs, const Activations *x, int64_t n, float *y,
                                                       int64_t n_out) {
    for (int64_t r = 0; r < n;) {
        const int64_t left = n - r;
        for (int64_t o = 0; o < rows; o++) {
            const uint8_t *row = w + o * row_bytes;
            const Activations *part = x + r * n_pairs;
            float *to = y + r * n_out + o;
            if (left >= WIDE) row_product(kind, row, n_pairs, part, WIDE, to, n_out);
            else if (left >= 2) row_product(kind, row, n_pairs, part, 2, to, n_out);
            else row_product(kind, row, n_pairs, part, 1, to, n_out);
        }
        r += left >= WIDE ? WIDE : left >= 2 ? 2 : 1;
    }
}

#define FOR_KIND(kind, statement)                                                                                      \
    switch (kind) {                                                                                                    \
    case Q4_0: { enum { K = Q4_0 }; statement; } break;                                                                \
    case Q5_0: { enum { K = Q5_0 }; statement; } break;                                                                \
    case Q8_0: { enum { K = Q8_0 }; statement; } break;                                                                \
    case Q4_K: { enum { K = Q4_K }; statement; } break;                                                                \
    case Q5_K: { enum { K = Q5_K }; statement; } break;                                                                \
    case Q6_K: { enum { K = Q6_K }; statement; } break;                                                                \
    }

/* A matrix in blocks, (n_out, n_in). */
typedef struct {
    const uint8_t *weights;
    int64_t n_out;
    int64_t kind;
} Matrix;

/* y = x W^T of several W that read the same x, (n, n_in), beside each other in y, (n, sum of n_out).
   Returns 0, or 1 where there is no memory. */
int products(const Matrix *matrices, int n_matrices, const float *x, int64_t n, int64_t n_in, float *y, int n_threads) {
    const int64_t n_pairs = n_in / PAIR;
    int64_t width = 0;
    for (int m = 0; m < n_matrices; m++) width += matrices[m].n_out;
    Activations *prepared = aligned_alloc(64, n * n_pairs * sizeof(Activations));
    if (!prepared) return 1;
    for (int64_t r = 0; r < n; r++) prepare_row(x + r * n_in, n_pairs, prepared + r * n_pairs);
#pragma omp parallel num_threads(n_threads)
    {
        float *to = y;
        for (int m = 0; m < n_matrices; m++) {
            const Matrix it = matrices[m];
            const int64_t row_bytes = n_in / block_of(it.kind) * block_bytes(it.kind);
#pragma omp for schedule(static) nowait
            for (int64_t o = 0; o < it.n_out; o += TILE) {
                const int64_t rows = it.n_out - o < TILE ? it.n_out - o : TILE;
                const uint8_t *w = it.weights + o * row_bytes;
                FOR_KIND(it.kind, tile(K, w, rows, row_bytes, n_pairs, prepared, n, to + o, width))
            }
            to += it.n_out;
        }
    }
    free(prepared);
    return 0;
}

/* Rounded to the nearest, halves to even; no NaN comes here. */
static inline uint16_t bfloat16_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* `n` blocks as floats, or where `narrow`, as bfloat16. */
void dequantise(int kind, const uint8_t *blocks, int64_t n, void *out, int narrow, int n_threads) {
    const int64_t block = block_of(kind), bytes = block_bytes(kind);
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t b = 0; b < n; b++) {
        float wide[256], *to = narrow ? wide : (float *)out + b * block;
        FOR_KIND(kind, floats_of(K, blocks + b * bytes, to))
        if (narrow)
            for (int64_t i = 0; i < block; i++) ((uint16_t *)out)[b * block + i] = bfloat16_of(wide[i]);
    }
}
