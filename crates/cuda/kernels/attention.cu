// Attention over a forest of segments. Which query sees which keys is a list of pieces per tile of 64: (first key, last key, first query,
// last query with CAUSAL in the top bit), ends exclusive. A causal query sees keys up to its own row. A query's pieces come in the order of
// its ancestors, so sums run in one order whatever else is in the batch. With a window a query sees only the latest keys of its path, its own among them.
//
// `q`, `out`: [queries, H, E]; `kv`: rows of keys [K, E], then values [K, E]; `lse`, `delta`: [queries, H].

#define CAUSAL 0x80000000u
#define TILE 64

/// The window of a query that sees all keys of its path.
#define NO_WINDOW 0xffffffffu

/// Keys, or tokens, one after another.
struct Keys {
    unsigned first, count;

    __device__ inline bool has(unsigned key) const { return key - first < count; }
    __device__ inline unsigned end() const { return first + count; }
};

struct Plan {
    const unsigned* rows;
    const unsigned* tile_first;
    const uint4* pieces;
    /// Of each row.
    const unsigned* positions;
    unsigned window;

    /// The keys of a piece that a query sees, one of the piece's; `row` is the query's.
    __device__ inline Keys seen(uint4 piece, unsigned row) const {
        unsigned first = piece.x, end = piece.w & CAUSAL ? min(piece.y, row + 1) : piece.y;
        if (window != NO_WINDOW) {
            unsigned tokens = positions[row] + 1 - positions[piece.x];
            if (tokens > window) first += tokens - window;
        }
        return Keys{first, end > first ? end - first : 0};
    }
    /// The first key of a piece that any of these queries of it sees.
    __device__ inline unsigned first_seen(uint4 piece, unsigned query, unsigned last_query) const {
        if (window == NO_WINDOW) return piece.x;
        // Within a segment, the first query sees the earliest keys.
        if (piece.w & CAUSAL) last_query = query + 1;
        unsigned first = piece.y;
        for (; query < last_query; query++) first = min(first, seen(piece, rows[query]).first);
        return first;
    }
};

/// The numbers of one head that a lane holds: element lane + 32 i.
#define HELD 8

/// Softmax-weighted sum of one query, taken up by a warp as scores come: the greatest score so far, and relative to it the weights' total and sum.
struct OnlineSoftmax {
    float sum[HELD], most, total;

    __device__ inline void begin() {
        most = MINUS_INFINITY;
        total = 0;
        for (unsigned i = 0; i < HELD; i++) sum[i] = 0;
    }
    /// Adds values of the score `score`.
    template <class T>
    __device__ inline void add(float score, const T* values, unsigned size) {
        float above = fmaxf(most, score), keep = expf(most - above), weight = expf(score - above);
        total = total * keep + weight;
        for (unsigned i = 0; i < HELD; i++) {
            unsigned e = threadIdx.x % WARP + WARP * i;
            if (e < size) sum[i] = sum[i] * keep + weight * to_float(values[e]);
        }
        most = above;
    }
};

/// A row of E numbers over the lanes of a warp, times `scale`.
template <class T>
__device__ inline void hold(const T* row, float scale, float* held, unsigned size) {
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = threadIdx.x % WARP + WARP * i;
        held[i] = e < size ? to_float(row[e]) * scale : 0.0f;
    }
}
/// This lane's part of its product with another row.
template <class T>
__device__ inline float dot_part(const float* held, const T* row, unsigned size) {
    float sum = 0;
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = threadIdx.x % WARP + WARP * i;
        if (e < size) sum += held[i] * to_float(row[e]);
    }
    return sum;
}

/// One warp per (query, head), any head size up to 256: the reference, and what f32 mode uses.
template <class T>
__device__ inline void attention_rows(Plan plan, const T* q, const T* kv, T* out, float* lse, unsigned heads, unsigned key_heads, unsigned size,
                                      unsigned queries, float scale) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= queries * heads) return;
    unsigned query = index / heads, head = index % heads, row = plan.rows[query];
    unsigned stride = 2 * key_heads * size, key_head = head / (heads / key_heads);
    float own[HELD];
    hold(q + (uint64_t)index * size, scale, own, size);
    OnlineSoftmax seen;
    seen.begin();
    for (unsigned p = plan.tile_first[query / TILE]; p < plan.tile_first[query / TILE + 1]; p++) {
        uint4 piece = plan.pieces[p];
        if (query < piece.z || query >= (piece.w & ~CAUSAL)) continue;
        Keys keys = plan.seen(piece, row);
        for (unsigned key = keys.first; key < keys.end(); key++) {
            const T* k = kv + (uint64_t)key * stride + (uint64_t)key_head * size;
            seen.add(warp_sum(dot_part(own, k, size)), k + (uint64_t)key_heads * size, size);
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = lane + WARP * i;
        if (e < size) put(out + (uint64_t)index * size + e, seen.sum[i] / seen.total);
    }
    if (lane == 0) lse[index] = seen.most + logf(seen.total);
}
extern "C" __global__ void attention_f32(const unsigned* rows, const unsigned* tile_first, const uint4* pieces, const unsigned* positions, unsigned window, const float* q, const float* kv,
                                         float* out, float* lse, unsigned heads, unsigned key_heads, unsigned size, unsigned queries, float scale) {
    attention_rows(Plan{rows, tile_first, pieces, positions, window}, q, kv, out, lse, heads, key_heads, size, queries, scale);
}

/// Heads of other sizes than tensor cores take.
extern "C" __global__ void attention_bf16(const unsigned* rows, const unsigned* tile_first, const uint4* pieces, const unsigned* positions, unsigned window, const bf16* q, const bf16* kv,
                                          bf16* out, float* lse, unsigned heads, unsigned key_heads, unsigned size, unsigned queries, float scale) {
    attention_rows(Plan{rows, tile_first, pieces, positions, window}, q, kv, out, lse, heads, key_heads, size, queries, scale);
}

/// delta = dout · out of each (query, head), one warp each.
template <class T>
__device__ inline void attention_delta(const T* out, const T* dout, float* delta, unsigned size, unsigned count) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= count) return;
    float sum = 0;
    for (unsigned e = lane; e < size; e += WARP) sum += to_float(out[(uint64_t)index * size + e]) * to_float(dout[(uint64_t)index * size + e]);
    sum = warp_sum(sum);
    if (lane == 0) delta[index] = sum;
}
extern "C" __global__ void attention_delta_f32(const float* out, const float* dout, float* delta, unsigned size, unsigned count) {
    attention_delta(out, dout, delta, size, count);
}
extern "C" __global__ void attention_delta_bf16(const bf16* out, const bf16* dout, float* delta, unsigned size, unsigned count) {
    attention_delta(out, dout, delta, size, count);
}

/// dq of each (query, head), one warp each.
template <class T>
__device__ inline void attention_dq(Plan plan, const T* q, const T* kv, const float* lse, const float* delta, const T* dout, T* dq, unsigned heads,
                                    unsigned key_heads, unsigned size, unsigned queries, float scale) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= queries * heads) return;
    unsigned query = index / heads, head = index % heads, row = plan.rows[query];
    unsigned stride = 2 * key_heads * size, key_head = head / (heads / key_heads);
    float own[HELD], up[HELD], sum[HELD], level = lse[index], minus = delta[index];
    hold(q + (uint64_t)index * size, scale, own, size);
    hold(dout + (uint64_t)index * size, 1.0f, up, size);
    for (unsigned i = 0; i < HELD; i++) sum[i] = 0;
    for (unsigned p = plan.tile_first[query / TILE]; p < plan.tile_first[query / TILE + 1]; p++) {
        uint4 piece = plan.pieces[p];
        if (query < piece.z || query >= (piece.w & ~CAUSAL)) continue;
        Keys keys = plan.seen(piece, row);
        for (unsigned key = keys.first; key < keys.end(); key++) {
            const T* k = kv + (uint64_t)key * stride + (uint64_t)key_head * size;
            const T* v = k + (uint64_t)key_heads * size;
            float s = warp_sum(dot_part(own, k, size)), d = warp_sum(dot_part(up, v, size));
            float ds = expf(s - level) * (d - minus) * scale;
            for (unsigned i = 0; i < HELD; i++) {
                unsigned e = lane + WARP * i;
                if (e < size) sum[i] += ds * to_float(k[e]);
            }
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = lane + WARP * i;
        if (e < size) put(dq + (uint64_t)index * size + e, sum[i]);
    }
}
extern "C" __global__ void attention_dq_f32(const unsigned* rows, const unsigned* tile_first, const uint4* pieces, const unsigned* positions, unsigned window, const float* q, const float* kv,
                                            const float* lse, const float* delta, const float* dout, float* dq, unsigned heads, unsigned key_heads,
                                            unsigned size, unsigned queries, float scale) {
    attention_dq(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dq, heads, key_heads, size, queries, scale);
}
extern "C" __global__ void attention_dq_bf16(const unsigned* rows, const unsigned* tile_first, const uint4* pieces, const unsigned* positions, unsigned window, const bf16* q, const bf16* kv,
                                             const float* lse, const float* delta, const bf16* dout, bf16* dq, unsigned heads, unsigned key_heads,
                                             unsigned size, unsigned queries, float scale) {
    attention_dq(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dq, heads, key_heads, size, queries, scale);
}

/// dk and dv of each (key, key head), one warp each. The plan's tiles are of keys here.
template <class T>
__device__ inline void attention_dkv(Plan plan, const T* q, const T* kv, const float* lse, const float* delta, const T* dout, T* dkv, unsigned heads,
                                     unsigned key_heads, unsigned size, unsigned keys, float scale) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= keys * key_heads) return;
    unsigned key = index / key_heads, key_head = index % key_heads, group = heads / key_heads;
    unsigned stride = 2 * key_heads * size;
    uint64_t at = (uint64_t)key * stride + (uint64_t)key_head * size;
    float k[HELD], v[HELD], dk[HELD], dv[HELD];
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = lane + WARP * i;
        k[i] = e < size ? to_float(kv[at + e]) : 0.0f;
        v[i] = e < size ? to_float(kv[at + (uint64_t)key_heads * size + e]) : 0.0f;
        dk[i] = dv[i] = 0;
    }
    for (unsigned p = plan.tile_first[key / TILE]; p < plan.tile_first[key / TILE + 1]; p++) {
        uint4 piece = plan.pieces[p];
        if (key < piece.x || key >= piece.y) continue;
        for (unsigned query = piece.z; query < (piece.w & ~CAUSAL); query++) {
            if (!plan.seen(piece, plan.rows[query]).has(key)) continue;
            for (unsigned g = 0; g < group; g++) {
                uint64_t qi = (uint64_t)query * heads + key_head * group + g;
                float s = 0, d = 0;
                for (unsigned i = 0; i < HELD; i++) {
                    unsigned e = lane + WARP * i;
                    if (e < size) {
                        s += to_float(q[qi * size + e]) * scale * k[i];
                        d += to_float(dout[qi * size + e]) * v[i];
                    }
                }
                float weight = expf(warp_sum(s) - lse[qi]), ds = weight * (warp_sum(d) - delta[qi]) * scale;
                for (unsigned i = 0; i < HELD; i++) {
                    unsigned e = lane + WARP * i;
                    if (e < size) {
                        dk[i] += ds * to_float(q[qi * size + e]);
                        dv[i] += weight * to_float(dout[qi * size + e]);
                    }
                }
            }
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = lane + WARP * i;
        if (e < size) {
            put(dkv + at + e, dk[i]);
            put(dkv + at + (uint64_t)key_heads * size + e, dv[i]);
        }
    }
}
extern "C" __global__ void attention_dkv_f32(const unsigned* rows, const unsigned* tile_first, const uint4* pieces, const unsigned* positions, unsigned window, const float* q, const float* kv,
                                             const float* lse, const float* delta, const float* dout, float* dkv, unsigned heads,
                                             unsigned key_heads, unsigned size, unsigned keys, float scale) {
    attention_dkv(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dkv, heads, key_heads, size, keys, scale);
}
extern "C" __global__ void attention_dkv_bf16(const unsigned* rows, const unsigned* tile_first, const uint4* pieces, const unsigned* positions, unsigned window, const bf16* q, const bf16* kv,
                                              const float* lse, const float* delta, const bf16* dout, bf16* dkv, unsigned heads,
                                              unsigned key_heads, unsigned size, unsigned keys, float scale) {
    attention_dkv(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dkv, heads, key_heads, size, keys, scale);
}
