// Attention's backward pass on tensor cores: bf16, heads of 64 or 128. One kernel takes 64 queries and passes over their keys (dq), the other takes
// 64 keys and passes over the queries that see them (dk, dv), so nothing is added up by more than one block. Scores are computed again from q and k.
//
// With P = exp(q · k scale - lse) and dS = P (dout · v - delta): dq = scale dS k, dk = scale dSᵀ q, dv = Pᵀ dout. P and dS are rounded to bf16 as
// operands, sums are f32.

/// Columns of P and dS that a warp holds at a time.
#define STEP 32

/// From scores s and products d = dout · v to P and dS: of one lane, for one row or column.
__device__ inline void attention_weight(bool seen, float level, float minus, float scale, float* s, float* d) {
    float p = seen ? expf(*s * scale - level) : 0.0f;
    *s = p;
    *d = seen ? p * (*d - minus) : 0.0f;
}

/// 16 rows of a warp's sums into rows of memory that are `stride` numbers apart; of them `count` exist.
template <int E>
__device__ inline void put_rows(bf16* to, uint64_t stride, int count, const Fragment* sum, float scale) {
    int lane = threadIdx.x % WARP;
    for (int h = 0; h < 2; h++) {
        int row = lane / 4 + 8 * h;
        if (row >= count) continue;
        for (int n = 0; n < E / 8; n++) {
            unsigned* at = reinterpret_cast<unsigned*>(to + row * stride + n * 8 + lane % 4 * 2);
            *at = pack_bf16(sum[n][2 * h] * scale, sum[n][2 * h + 1] * scale);
        }
    }
}

template <int E>
__device__ inline void attention_dq_tile(Plan plan, const bf16* q, const bf16* kv, const float* lse, const float* delta, const bf16* dout, bf16* dq,
                                         unsigned heads, unsigned key_heads, unsigned queries, float scale) {
    const int STRIDE = TileRow<E>::STRIDE;
    SHARED(bf16, shared_q);
    bf16* shared_dout = shared_q + 64 * STRIDE;
    bf16* shared_k = shared_dout + 64 * STRIDE;
    bf16* shared_v = shared_k + 64 * STRIDE;
    unsigned tile = blockIdx.x, head = blockIdx.y, first = tile * TILE, here = min((unsigned)TILE, queries - first);
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, own = first + warp * 16;
    unsigned kv_stride = 2 * key_heads * E, key_head = head / (heads / key_heads);
    uint64_t at = ((uint64_t)first * heads + head) * E;
    load_tile<E>(shared_q, q + at, heads * E, here);
    load_tile<E>(shared_dout, dout + at, heads * E, here);

    // The two rows of this lane's fragments.
    unsigned query[2], row[2];
    float level[2], minus[2];
    for (int h = 0; h < 2; h++) {
        query[h] = own + lane / 4 + 8 * h;
        bool exists = query[h] < queries;
        row[h] = exists ? plan.rows[query[h]] : 0;
        level[h] = exists ? lse[(uint64_t)query[h] * heads + head] : 0.0f;
        minus[h] = exists ? delta[(uint64_t)query[h] * heads + head] : 0.0f;
    }
    Fragment sum[E / 8];
    clear<E / 8>(sum);

    for (unsigned p = plan.tile_first[tile]; p < plan.tile_first[tile + 1]; p++) {
        uint4 piece = plan.pieces[p];
        bool causal = piece.w & CAUSAL;
        unsigned last_query = min(piece.w & ~CAUSAL, first + here), last_key = piece.y;
        // Nobody sees beyond the row of the last query: of the tile, and of this warp.
        if (causal) last_key = min(last_key, plan.rows[last_query - 1] + 1);
        unsigned last_own = min(last_query, own + 16), seen_keys = last_key;
        if (own >= last_query || own + 16 <= piece.z)
            seen_keys = 0;
        else if (causal)
            seen_keys = min(last_key, plan.rows[last_own - 1] + 1);
        unsigned limit[2];
        for (int h = 0; h < 2; h++) {
            bool sees = query[h] >= piece.z && query[h] < last_query;
            limit[h] = !sees ? 0 : causal ? min(last_key, row[h] + 1) : last_key;
        }
        for (unsigned base = piece.x; base < last_key; base += 64) {
            const bf16* keys = kv + (uint64_t)base * kv_stride + (uint64_t)key_head * E;
            unsigned count = min(64u, last_key - base);
            barrier();
            load_tile<E>(shared_k, keys, kv_stride, count);
            load_tile<E>(shared_v, keys + (uint64_t)key_heads * E, kv_stride, count);
            cp_async_wait<0>();
            barrier();
            for (unsigned step = 0; step < 64 && base + step < seen_keys; step += STEP) {
                Fragment s[STEP / 8], d[STEP / 8];
                dot_rows<E, STEP / 8>(s, shared_q + warp * 16 * STRIDE, shared_k + step * STRIDE);
                dot_rows<E, STEP / 8>(d, shared_dout + warp * 16 * STRIDE, shared_v + step * STRIDE);
                for (int n = 0; n < STEP / 8; n++)
                    for (int i = 0; i < 4; i++) {
                        unsigned key = base + step + n * 8 + lane % 4 * 2 + i % 2;
                        attention_weight(key < limit[i / 2], level[i / 2], minus[i / 2], scale, &s[n][i], &d[n][i]);
                    }
                for (int k = 0; k < STEP / 16; k++) add_rows<E>(sum, d + 2 * k, shared_k + (step + k * 16) * STRIDE);
            }
        }
    }
    // A tile without pieces still has its queries' copies under way.
    cp_async_wait<0>();
    put_rows<E>(dq + ((uint64_t)own * heads + head) * E, (uint64_t)heads * E, (int)queries - (int)own, sum, scale);
}

template <int E>
__device__ inline void attention_dkv_tile(Plan plan, const bf16* q, const bf16* kv, const float* lse, const float* delta, const bf16* dout,
                                          bf16* dkv, unsigned heads, unsigned key_heads, unsigned keys, float scale) {
    const int STRIDE = TileRow<E>::STRIDE;
    SHARED(bf16, shared_k);
    bf16* shared_v = shared_k + 64 * STRIDE;
    bf16* shared_q = shared_v + 64 * STRIDE;
    bf16* shared_dout = shared_q + 64 * STRIDE;
    // Of each query of the tile in shared memory: lse, delta, and the end of the keys that it sees.
    float* level = reinterpret_cast<float*>(shared_dout + 64 * STRIDE);
    float* minus = level + 64;
    unsigned* limit = reinterpret_cast<unsigned*>(minus + 64);
    unsigned tile = blockIdx.x, key_head = blockIdx.y, first = tile * TILE, here = min((unsigned)TILE, keys - first);
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, own = first + warp * 16;
    unsigned group = heads / key_heads, kv_stride = 2 * key_heads * E;
    const bf16* k = kv + (uint64_t)first * kv_stride + (uint64_t)key_head * E;
    load_tile<E>(shared_k, k, kv_stride, here);
    load_tile<E>(shared_v, k + (uint64_t)key_heads * E, kv_stride, here);
    Fragment dk[E / 8], dv[E / 8];
    clear<E / 8>(dk);
    clear<E / 8>(dv);

    for (unsigned p = plan.tile_first[tile]; p < plan.tile_first[tile + 1]; p++) {
        uint4 piece = plan.pieces[p];
        bool causal = piece.w & CAUSAL;
        unsigned last_query = piece.w & ~CAUSAL;
        // The piece's keys: of the tile, and of this warp.
        unsigned first_key = piece.x > first ? piece.x : first, last_key = min(piece.y, first + here);
        unsigned first_own = first_key > own ? first_key : own;
        bool concerned = first_own < min(last_key, own + 16);
        for (unsigned base = piece.z; base < last_query; base += 64) {
            unsigned count = min(64u, last_query - base);
            // Rows ascend: these queries all come before the tile's keys.
            if (causal && plan.rows[base + count - 1] < first_key) continue;
            for (unsigned head = key_head * group; head < key_head * group + group; head++) {
                uint64_t at = (uint64_t)base * heads + head;
                barrier();
                load_tile<E>(shared_q, q + at * E, heads * E, count);
                load_tile<E>(shared_dout, dout + at * E, heads * E, count);
                for (unsigned i = threadIdx.x; i < 64; i += blockDim.x) {
                    bool exists = i < count;
                    level[i] = exists ? lse[at + (uint64_t)i * heads] : 0.0f;
                    minus[i] = exists ? delta[at + (uint64_t)i * heads] : 0.0f;
                    limit[i] = !exists ? 0 : causal ? min(last_key, plan.rows[base + i] + 1) : last_key;
                }
                cp_async_wait<0>();
                barrier();
                if (!concerned) continue;
                for (unsigned step = 0; step < count; step += STEP) {
                    // Rows ascend here too.
                    if (limit[min(step + STEP, count) - 1] <= first_own) continue;
                    Fragment s[STEP / 8], d[STEP / 8];
                    dot_rows<E, STEP / 8>(s, shared_k + warp * 16 * STRIDE, shared_q + step * STRIDE);
                    dot_rows<E, STEP / 8>(d, shared_v + warp * 16 * STRIDE, shared_dout + step * STRIDE);
                    for (int n = 0; n < STEP / 8; n++)
                        for (int i = 0; i < 4; i++) {
                            unsigned key = own + lane / 4 + 8 * (i / 2), query = step + n * 8 + lane % 4 * 2 + i % 2;
                            bool seen = key >= first_key && key < limit[query];
                            attention_weight(seen, level[query], minus[query], scale, &s[n][i], &d[n][i]);
                        }
                    for (int k = 0; k < STEP / 16; k++) {
                        add_rows<E>(dv, s + 2 * k, shared_dout + (step + k * 16) * STRIDE);
                        add_rows<E>(dk, d + 2 * k, shared_q + (step + k * 16) * STRIDE);
                    }
                }
            }
        }
    }
    // A tile without pieces still has its keys' copies under way.
    cp_async_wait<0>();
    bf16* to = dkv + (uint64_t)own * kv_stride + (uint64_t)key_head * E;
    put_rows<E>(to, kv_stride, (int)keys - (int)own, dk, scale);
    put_rows<E>(to + (uint64_t)key_heads * E, kv_stride, (int)keys - (int)own, dv, 1.0f);
}

/// Grid (tiles of queries, heads), 128 threads, 4 * 64 * (E + 8) * 2 bytes of shared memory.
extern "C" __global__ __launch_bounds__(128) void attention_dq_bf16_64(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                       const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                       const bf16* dout, bf16* dq, unsigned heads, unsigned key_heads,
                                                                       unsigned queries, float scale) {
    attention_dq_tile<64>(Plan{rows, tile_first, pieces}, q, kv, lse, delta, dout, dq, heads, key_heads, queries, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_dq_bf16_128(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                        const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                        const bf16* dout, bf16* dq, unsigned heads, unsigned key_heads,
                                                                        unsigned queries, float scale) {
    attention_dq_tile<128>(Plan{rows, tile_first, pieces}, q, kv, lse, delta, dout, dq, heads, key_heads, queries, scale);
}
/// Grid (tiles of keys, key heads), 128 threads, 768 bytes more.
extern "C" __global__ __launch_bounds__(128) void attention_dkv_bf16_64(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                        const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                        const bf16* dout, bf16* dkv, unsigned heads, unsigned key_heads,
                                                                        unsigned keys, float scale) {
    attention_dkv_tile<64>(Plan{rows, tile_first, pieces}, q, kv, lse, delta, dout, dkv, heads, key_heads, keys, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_dkv_bf16_128(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                         const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                         const bf16* dout, bf16* dkv, unsigned heads, unsigned key_heads,
                                                                         unsigned keys, float scale) {
    attention_dkv_tile<128>(Plan{rows, tile_first, pieces}, q, kv, lse, delta, dout, dkv, heads, key_heads, keys, scale);
}
