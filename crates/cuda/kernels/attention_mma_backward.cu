// Attention's backward pass on tensor cores: bf16, heads of 64 or 128. One kernel takes 64 queries and passes over their keys (dq), the other takes
// 64 keys and passes over the queries that see them (dk, dv), so nothing is added up by more than one block. Scores are computed again from q and k.
//
// With P = exp(q · k scale - lse) and dS = P (dout · v - delta): dq = scale dS k, dk = scale dSᵀ q, dv = Pᵀ dout. P and dS are rounded to bf16 as
// operands, sums are f32. While a step of 32 keys (or queries) is computed on, the next is copied to the other half of its buffers.

/// Columns of P and dS that a warp holds at a time, and that are copied at a time.
#define STEP 32u

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

    const bf16* keys = kv + (uint64_t)key_head * E;
    auto copy = [&](const KeySteps<STEP>& step, unsigned half) {
        const bf16* from = keys + (uint64_t)step.base * kv_stride;
        load_tile<E, STEP>(shared_k + half * STEP * STRIDE, from, kv_stride, step.count());
        load_tile<E, STEP>(shared_v + half * STEP * STRIDE, from + key_heads * E, kv_stride, step.count());
    };
    KeySteps<STEP> step(plan, tile, first + here);
    bool more = step.next();
    if (more) copy(step, 0);
    for (unsigned half = 0; more; half ^= 1) {
        cp_async_wait<0>();
        // All have the step, and nobody reads the other half.
        barrier();
        unsigned base = step.base;
        Keys seen[2] = {step.seen(query[0], row[0]), step.seen(query[1], row[1])};
        // Rows ascend: the warp's last query of the piece, if it has one, sees most.
        unsigned last_own = min(step.last_query, own + 16) - 1;
        bool concerned = own < step.last_query && base < step.seen(last_own, plan.rows[last_own]).end();
        more = step.next();
        if (more) copy(step, half ^ 1);
        if (concerned) {
            const bf16 *k = shared_k + half * STEP * STRIDE, *v = shared_v + half * STEP * STRIDE;
            Fragment s[STEP / 8], d[STEP / 8];
            dot_rows<E, STEP / 8>(s, shared_q + warp * 16 * STRIDE, k);
            dot_rows<E, STEP / 8>(d, shared_dout + warp * 16 * STRIDE, v);
            for (int n = 0; n < STEP / 8; n++)
                for (int i = 0; i < 4; i++) {
                    unsigned key = base + n * 8 + lane % 4 * 2 + i % 2;
                    attention_weight(seen[i / 2].has(key), level[i / 2], minus[i / 2], scale, &s[n][i], &d[n][i]);
                }
            for (int n = 0; n < STEP / 16; n++) add_rows<E>(sum, d + 2 * n, k + n * 16 * STRIDE);
        }
    }
    // A tile without pieces still has its queries' copies under way.
    cp_async_wait<0>();
    put_rows<E>(dq + ((uint64_t)own * heads + head) * E, (uint64_t)heads * E, (int)queries - (int)own, sum, scale);
}

/// The queries of each head of a group that see a tile of keys, `STEP` at a time: of 64 queries all heads, before the next 64.
struct QuerySteps {
    Plan plan;
    unsigned last_piece, next_piece, first, end, first_head, last_head;
    /// Those of a step: `base + step` and what follows up to `count` of the 64, of keys `first_key .. last_key`.
    uint4 piece;
    unsigned last_query, base, count, head, step, first_key, last_key;

    __device__ inline QuerySteps(Plan plan, unsigned tile, unsigned first, unsigned end, unsigned first_head, unsigned group)
        : plan(plan),
          last_piece(plan.tile_first[tile + 1]),
          next_piece(plan.tile_first[tile]),
          first(first),
          end(end),
          first_head(first_head),
          last_head(first_head + group),
          last_query(0),
          base(0),
          count(0),
          head(first_head + group),
          step(0) {}
    __device__ inline bool causal() const { return piece.w & CAUSAL; }
    /// To the next step; false if there is none.
    __device__ inline bool next() {
        step += STEP;
        if (step < count) return true;
        step = 0;
        if (++head < last_head) return true;
        head = first_head;
        do {
            for (base += 64; base >= last_query; base = piece.z) {
                if (next_piece == last_piece) return false;
                piece = plan.pieces[next_piece++];
                last_query = piece.w & ~CAUSAL;
                first_key = piece.x > first ? piece.x : first, last_key = min(piece.y, end);
            }
            count = min(64u, last_query - base);
            // Rows ascend: these queries all come before the tile's keys. Or their windows begin after them.
        } while ((causal() && plan.rows[base + count - 1] < first_key) || plan.first_seen(piece, base, base + count) >= last_key);
        return true;
    }
};

template <int E>
__device__ inline void attention_dkv_tile(Plan plan, const bf16* q, const bf16* kv, const float* lse, const float* delta, const bf16* dout,
                                          bf16* dkv, unsigned heads, unsigned key_heads, unsigned keys, float scale) {
    const int STRIDE = TileRow<E>::STRIDE;
    SHARED(bf16, shared_k);
    bf16* shared_v = shared_k + 64 * STRIDE;
    bf16* shared_q = shared_v + 64 * STRIDE;
    bf16* shared_dout = shared_q + 64 * STRIDE;
    // Of each query in shared memory: lse, delta, and the keys of the tile that it sees, up to a limit.
    float* level = reinterpret_cast<float*>(shared_dout + 64 * STRIDE);
    float* minus = level + 64;
    unsigned* limit = reinterpret_cast<unsigned*>(minus + 64);
    unsigned* start = limit + 64;
    unsigned tile = blockIdx.x, key_head = blockIdx.y, first = tile * TILE, here = min((unsigned)TILE, keys - first);
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, own = first + warp * 16;
    unsigned group = heads / key_heads, kv_stride = 2 * key_heads * E;
    const bf16* k = kv + (uint64_t)first * kv_stride + (uint64_t)key_head * E;
    load_tile<E>(shared_k, k, kv_stride, here);
    load_tile<E>(shared_v, k + (uint64_t)key_heads * E, kv_stride, here);
    Fragment dk[E / 8], dv[E / 8];
    clear<E / 8>(dk);
    clear<E / 8>(dv);

    auto copy = [&](const QuerySteps& of, unsigned half) {
        unsigned from = of.base + of.step, count = min(STEP, of.count - of.step);
        uint64_t at = (uint64_t)from * heads + of.head;
        load_tile<E, STEP>(shared_q + half * STEP * STRIDE, q + at * E, heads * E, count);
        load_tile<E, STEP>(shared_dout + half * STEP * STRIDE, dout + at * E, heads * E, count);
        bool exists = lane < count;
        unsigned to = half * STEP + lane;
        if (warp == 0) level[to] = exists ? lse[at + (uint64_t)lane * heads] : 0.0f;
        if (warp == 1) minus[to] = exists ? delta[at + (uint64_t)lane * heads] : 0.0f;
        if (warp >= 2) {
            Keys seen = exists ? plan.seen(of.piece, plan.rows[from + lane]) : Keys{0, 0};
            if (warp == 2) limit[to] = min(of.last_key, seen.end());
            if (warp == 3) start[to] = max(of.first_key, seen.first);
        }
    };
    QuerySteps now(plan, tile, first, first + here, key_head * group, group);
    bool more = now.next();
    if (more) copy(now, 0);
    for (unsigned half = 0; more; half ^= 1) {
        cp_async_wait<0>();
        // All have the step, and nobody reads the other half.
        barrier();
        QuerySteps next = now;
        more = next.next();
        if (more) copy(next, half ^ 1);
        // The piece's keys of this warp. Rows ascend here too.
        unsigned first_own = now.first_key > own ? now.first_key : own, count = min(STEP, now.count - now.step);
        unsigned of_half = half * STEP;
        if (first_own < min(now.last_key, own + 16) && limit[of_half + count - 1] > first_own) {
            const bf16 *some_q = shared_q + of_half * STRIDE, *some_dout = shared_dout + of_half * STRIDE;
            Fragment s[STEP / 8], d[STEP / 8];
            dot_rows<E, STEP / 8>(s, shared_k + warp * 16 * STRIDE, some_q);
            dot_rows<E, STEP / 8>(d, shared_v + warp * 16 * STRIDE, some_dout);
            for (int n = 0; n < STEP / 8; n++)
                for (int i = 0; i < 4; i++) {
                    unsigned key = own + lane / 4 + 8 * (i / 2), query = of_half + n * 8 + lane % 4 * 2 + i % 2;
                    bool seen = key >= start[query] && key < limit[query];
                    attention_weight(seen, level[query], minus[query], scale, &s[n][i], &d[n][i]);
                }
            for (int n = 0; n < STEP / 16; n++) {
                add_rows<E>(dv, s + 2 * n, some_dout + n * 16 * STRIDE);
                add_rows<E>(dk, d + 2 * n, some_q + n * 16 * STRIDE);
            }
        }
        now = next;
    }
    // A tile without pieces still has its keys' copies under way.
    cp_async_wait<0>();
    bf16* to = dkv + (uint64_t)own * kv_stride + (uint64_t)key_head * E;
    put_rows<E>(to, kv_stride, (int)keys - (int)own, dk, scale);
    put_rows<E>(to + (uint64_t)key_heads * E, kv_stride, (int)keys - (int)own, dv, 1.0f);
}

/// Grid (tiles of queries, heads), 128 threads, 4 * 64 * (E + 8) * 2 bytes of shared memory.
extern "C" __global__ __launch_bounds__(128) void attention_dq_bf16_64(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                       const unsigned* positions, unsigned window, const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                       const bf16* dout, bf16* dq, unsigned heads, unsigned key_heads,
                                                                       unsigned queries, float scale) {
    attention_dq_tile<64>(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dq, heads, key_heads, queries, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_dq_bf16_128(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                        const unsigned* positions, unsigned window, const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                        const bf16* dout, bf16* dq, unsigned heads, unsigned key_heads,
                                                                        unsigned queries, float scale) {
    attention_dq_tile<128>(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dq, heads, key_heads, queries, scale);
}
/// Grid (tiles of keys, key heads), 128 threads, 1024 bytes more.
extern "C" __global__ __launch_bounds__(128) void attention_dkv_bf16_64(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                        const unsigned* positions, unsigned window, const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                        const bf16* dout, bf16* dkv, unsigned heads, unsigned key_heads,
                                                                        unsigned keys, float scale) {
    attention_dkv_tile<64>(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dkv, heads, key_heads, keys, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_dkv_bf16_128(const unsigned* rows, const unsigned* tile_first, const uint4* pieces,
                                                                         const unsigned* positions, unsigned window, const bf16* q, const bf16* kv, const float* lse, const float* delta,
                                                                         const bf16* dout, bf16* dkv, unsigned heads, unsigned key_heads,
                                                                         unsigned keys, float scale) {
    attention_dkv_tile<128>(Plan{rows, tile_first, pieces, positions, window}, q, kv, lse, delta, dout, dkv, heads, key_heads, keys, scale);
}
