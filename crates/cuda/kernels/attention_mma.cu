// Attention's forward pass on tensor cores: bf16, heads of 64 or 128. A block of 4 warps takes 64 queries of one head; keys and values pass
// through shared memory in tiles of 64. Nothing of size T x T exists. Values are copied while scores are computed, and the next keys while these weigh
// the values.

/// Rows of a tile in shared memory are 16 bytes longer than the head: ldmatrix then meets no bank twice.
template <int E>
struct TileRow {
    static const int STRIDE = E + 8;
};

/// ROWS rows of E numbers from memory; rows beyond `count` are zero.
template <int E, unsigned ROWS = 64>
__device__ inline void load_tile(bf16* to, const bf16* from, unsigned stride, unsigned count) {
    const unsigned CHUNKS = E / 8, AT_ONCE = 128 / CHUNKS;
    unsigned first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    to += first * TileRow<E>::STRIDE + chunk * 8, from += (uint64_t)first * stride + chunk * 8;
    for (unsigned row = first; row < ROWS; row += AT_ONCE) {
        if (row < count)
            cp_async16(to, from);
        else
            for (int e = 0; e < 8; e++) to[e].bits = 0;
        to += AT_ONCE * TileRow<E>::STRIDE, from += AT_ONCE * stride;
    }
    cp_async_commit();
}

/// A lane's part of a 16 x 8 result of a warp: rows lane / 4 and 8 below, columns lane % 4 * 2 and its neighbour.
typedef float Fragment[4];

template <int N>
__device__ inline void clear(Fragment* f) {
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++) f[n][i] = 0;
}

/// to = a bᵀ: dot products of 16 rows of `a` with 8 N rows of `b`, all of E numbers in shared memory.
template <int E, int N>
__device__ inline void dot_rows(Fragment* to, const bf16* a, const bf16* b) {
    const int STRIDE = TileRow<E>::STRIDE;
    unsigned lane = threadIdx.x % WARP;
    clear<N>(to);
    for (int k = 0; k < E; k += 16) {
        unsigned x[4];
        ldmatrix_x4(x, a + (lane % 16) * STRIDE + k + (lane / 16) * 8);
        for (int n = 0; n < N; n += 2) {
            unsigned y[4];
            ldmatrix_x4(y, b + (n * 8 + (lane / 16) * 8 + lane % 8) * STRIDE + k + (lane / 8 % 2) * 8);
            mma_16816(to[n], x, y);
            mma_16816(to[n + 1], x, y + 2);
        }
    }
}

/// to += weights rows: 16 x 16 weights, rounded to bf16, times 16 rows of E numbers in shared memory.
template <int E>
__device__ inline void add_rows(Fragment* to, const Fragment* weights, const bf16* rows) {
    unsigned lane = threadIdx.x % WARP;
    unsigned x[4] = {pack_bf16(weights[0][0], weights[0][1]), pack_bf16(weights[0][2], weights[0][3]),
                     pack_bf16(weights[1][0], weights[1][1]), pack_bf16(weights[1][2], weights[1][3])};
    for (int n = 0; n < E / 8; n += 2) {
        unsigned y[4];
        ldmatrix_x4_transposed(y, rows + (lane % 16) * TileRow<E>::STRIDE + n * 8 + (lane / 16) * 8);
        mma_16816(to[n], x, y);
        mma_16816(to[n + 1], x, y + 2);
    }
}

/// The keys that a tile of queries sees, `STEP` at a time, in the order of its pieces.
template <unsigned STEP>
struct KeySteps {
    Plan plan;
    unsigned last_piece, next_piece, first_query, end_query;
    /// Those of a step: `base .. base + count()`, for queries `piece.z .. last_query`.
    uint4 piece;
    unsigned last_query, last_key, base;

    __device__ inline KeySteps(Plan plan, unsigned tile, unsigned end_query)
        : plan(plan),
          last_piece(plan.tile_first[tile + 1]),
          next_piece(plan.tile_first[tile]),
          first_query(tile * TILE),
          end_query(end_query),
          last_key(0),
          base(0) {}
    __device__ inline bool causal() const { return piece.w & CAUSAL; }
    __device__ inline unsigned count() const { return min(STEP, last_key - base); }
    /// The keys that a query with this row sees.
    __device__ inline Keys seen(unsigned query, unsigned row) const {
        return query < piece.z || query >= last_query ? Keys{0, 0} : plan.seen(piece, row);
    }
    /// To the next step; false if there is none.
    __device__ inline bool next() {
        for (base += STEP; base >= last_key; base = plan.first_seen(piece, max(piece.z, first_query), last_query)) {
            if (next_piece == last_piece) return false;
            piece = plan.pieces[next_piece++];
            last_query = min(piece.w & ~CAUSAL, end_query);
            // Nobody sees beyond the row of the last query.
            last_key = causal() ? min(piece.y, plan.rows[last_query - 1] + 1) : piece.y;
        }
        return true;
    }
};

template <int E>
__device__ inline void attention_tile(Plan plan, const bf16* q, const bf16* kv, bf16* out, float* lse, unsigned heads, unsigned key_heads,
                                      unsigned queries, float scale) {
    const int STRIDE = TileRow<E>::STRIDE;
    SHARED(bf16, shared_q);
    bf16* shared_k = shared_q + 64 * STRIDE;
    bf16* shared_v = shared_k + 64 * STRIDE;
    unsigned tile = blockIdx.x, head = blockIdx.y, first = tile * TILE, here = min((unsigned)TILE, queries - first);
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned kv_stride = 2 * key_heads * E, key_head = head / (heads / key_heads);
    load_tile<E>(shared_q, q + ((uint64_t)first * heads + head) * E, heads * E, here);

    // The two rows of this lane's fragments: g and g + 8 of the warp's 16.
    unsigned query[2], row[2];
    for (int h = 0; h < 2; h++) {
        query[h] = first + warp * 16 + lane / 4 + 8 * h;
        row[h] = query[h] < queries ? plan.rows[query[h]] : 0;
    }
    float most[2] = {MINUS_INFINITY, MINUS_INFINITY}, total[2] = {0, 0};
    Fragment sum[E / 8];
    clear<E / 8>(sum);

    const bf16* keys = kv + (uint64_t)key_head * E;
    KeySteps<64> step(plan, tile, first + here);
    bool more = step.next();
    if (more) load_tile<E>(shared_k, keys + (uint64_t)step.base * kv_stride, kv_stride, step.count());
    while (more) {
        cp_async_wait<0>();
        // All have the keys, and nobody reads the values before.
        barrier();
        load_tile<E>(shared_v, keys + (uint64_t)step.base * kv_stride + key_heads * E, kv_stride, step.count());
        // S = Q Kᵀ: 16 x 64 per warp.
        Fragment s[8];
        dot_rows<E, 8>(s, shared_q + warp * 16 * STRIDE, shared_k);
        unsigned base = step.base;
        Keys seen[2] = {step.seen(query[0], row[0]), step.seen(query[1], row[1])};
        more = step.next();
        barrier();
        if (more)
            load_tile<E>(shared_k, keys + (uint64_t)step.base * kv_stride, kv_stride, step.count());
        else
            cp_async_commit();
        // Softmax as it comes, row by row.
        float above[2], keep[2];
        // Without it the scores are indexed at run time and so lie in local memory.
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = most[h];
            for (int n = 0; n < 8; n++)
                for (int i = 0; i < 2; i++) {
                    float& v = s[n][2 * h + i];
                    v = seen[h].has(base + n * 8 + lane % 4 * 2 + i) ? v * scale : MINUS_INFINITY;
                    m = fmaxf(m, v);
                }
            m = fmaxf(m, shfl_xor(m, 1));
            m = fmaxf(m, shfl_xor(m, 2));
            above[h] = m;
            keep[h] = expf(most[h] - m);
            most[h] = m;
            float part = 0;
            for (int n = 0; n < 8; n++)
                for (int i = 0; i < 2; i++) {
                    float& v = s[n][2 * h + i];
                    v = v <= MINUS_INFINITY ? 0.0f : expf(v - above[h]);
                    part += v;
                }
            part += shfl_xor(part, 1);
            part += shfl_xor(part, 2);
            total[h] = total[h] * keep[h] + part;
        }
        for (int n = 0; n < E / 8; n++)
            for (int i = 0; i < 4; i++) sum[n][i] *= keep[i / 2];
        cp_async_wait<1>();
        barrier();
        // out += P V.
        for (int k = 0; k < 4; k++) add_rows<E>(sum, s + 2 * k, shared_v + k * 16 * STRIDE);
    }
    // A tile without pieces still has its queries' copies under way.
    cp_async_wait<0>();
    for (int h = 0; h < 2; h++) {
        if (query[h] >= queries) continue;
        uint64_t at = (uint64_t)query[h] * heads + head;
        for (int n = 0; n < E / 8; n++) {
            unsigned* to = reinterpret_cast<unsigned*>(out + at * E + n * 8 + lane % 4 * 2);
            *to = pack_bf16(sum[n][2 * h] / total[h], sum[n][2 * h + 1] / total[h]);
        }
        if (lane % 4 == 0) lse[at] = most[h] + logf(total[h]);
    }
}
/// Grid (tiles of queries, heads), 128 threads, 3 * 64 * (E + 8) * 2 bytes of shared memory.
extern "C" __global__ __launch_bounds__(128) void attention_bf16_64(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                    const unsigned* positions, unsigned window, const bf16* q, const bf16* kv, bf16* out, float* lse, unsigned heads,
                                                                    unsigned key_heads, unsigned queries, float scale) {
    attention_tile<64>(Plan{rows, tile_first, pieces, positions, window}, q, kv, out, lse, heads, key_heads, queries, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_bf16_128(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                     const unsigned* positions, unsigned window, const bf16* q, const bf16* kv, bf16* out, float* lse, unsigned heads,
                                                                     unsigned key_heads, unsigned queries, float scale) {
    attention_tile<128>(Plan{rows, tile_first, pieces, positions, window}, q, kv, out, lse, heads, key_heads, queries, scale);
}
