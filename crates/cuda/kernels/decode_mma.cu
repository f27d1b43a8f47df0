// Decoding's attention on tensor cores: bf16, heads of 64 or 128. The same items and parts as decode.cu, for eight pairs of a row and a query head at a
// time: the columns of products whose rows are keys (scores = K qᵀ) and then numbers of a value (out = Vᵀ weights). A pair's result doesn't depend on the
// other columns, and where a key stands in a product depends on its place in the item alone.
//
// An item has at most ITEM_KEYS tokens, so that its softmax needs all scores once. Weights are rounded to bf16 as operands; sums, also of weights, are f32.
// The numbers of a query and a key may be multiplied in any order, and so may the keys of weights and values: the orders here are those in which a lane's
// 16 bytes are its operands.

/// Pairs of a product.
#define PAIRS_AT_ONCE 8
/// Numbers between the weights of two pairs.
#define WEIGHT_STRIDE (ITEM_KEYS + 8)

/// Tokens are taken by 64.
__device__ inline unsigned padded(unsigned tokens) { return (tokens + 63) / 64 * 64; }
/// N registers of neighbours, loaded at once.
template <unsigned N>
struct alignas(4 * N) Words {
    unsigned at[N];
};

/// Up to eight pairs, from `first` on. `slots`: of the item's tokens, and then filled up to `padded(tokens)`.
template <unsigned E, class Rows>
__device__ inline void decode_eight_pairs(const DecodeItem<bf16>& d, const Rows& rows, unsigned first, const unsigned* slots, unsigned tokens, bool own_key) {
    const unsigned STRIDE = E + 4, KEYS = ITEM_KEYS / 64;
    unsigned warp = threadIdx.x / WARP, group = threadIdx.x % WARP / 4, lane = threadIdx.x % 4;
    // [pair, key]; then of each warp its pairs' maxima and sums; then queries.
    SHARED(unsigned, words);
    bf16* weights = reinterpret_cast<bf16*>(words + ITEM_KEYS);
    float* most = reinterpret_cast<float*>(weights + PAIRS_AT_ONCE * WEIGHT_STRIDE);
    float* total = most + 4 * PAIRS_AT_ONCE;
    float* heads = total + 4 * PAIRS_AT_ONCE;
    rows.template place<PAIRS_AT_ONCE>(d, first, own_key, heads, STRIDE);
    barrier();
    unsigned pairs = d.pairs(), end = padded(tokens);
    unsigned q[E / 32][4];
#pragma unroll
    for (unsigned j = 0; j < E / 32; j++)
#pragma unroll
        for (unsigned h = 0; h < 2; h++) {
            uint4 four = reinterpret_cast<const uint4*>(heads + group * STRIDE + 8 * (4 * j + lane))[h];
            bool exists = first + group < pairs;
            q[j][2 * h] = exists ? high_halves(four.x, four.y) : 0;
            q[j][2 * h + 1] = exists ? high_halves(four.z, four.w) : 0;
        }

    // To the key head's numbers in slot 0, and from slot to slot, in bytes.
    const char* keys = reinterpret_cast<const char*>(d.cache + d.key_head * E);
    unsigned slot_bytes = d.slot_width() * sizeof(bf16);

    // Every fourth 16 keys are a warp's. A lane has two keys of them and two pairs.
    float above[2] = {MINUS_INFINITY, MINUS_INFINITY};
    Keys seen[2];
    for (unsigned c = 0; c < 2; c++) seen[c] = first + 2 * lane + c < pairs ? d.seen(first + 2 * lane + c, tokens) : Keys{0, tokens};
    Fragment scores[KEYS];
#pragma unroll
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned key = 64 * i + 16 * warp + 2 * group;
        if (64 * i >= end) break;
        clear<1>(scores + i);
        const uint4* k[2];
        for (unsigned h = 0; h < 2; h++) k[h] = reinterpret_cast<const uint4*>(keys + (uint64_t)slots[key + h] * slot_bytes);
#pragma unroll
        for (unsigned j = 0; j < E / 32; j++) {
            uint4 x = k[0][4 * j + lane], y = k[1][4 * j + lane];
            unsigned even[4] = {x.x, y.x, x.y, y.y}, odd[4] = {x.z, y.z, x.w, y.w};
            mma_16816(scores[i], even, q[j]);
            mma_16816(scores[i], odd, q[j] + 2);
        }
#pragma unroll
        for (unsigned n = 0; n < 4; n++) {
            float& v = scores[i][n];
            v = seen[n % 2].has(key + n / 2) ? times(v, d.scale * LOG2_E) : MINUS_INFINITY;
            above[n % 2] = fmaxf(above[n % 2], v);
        }
    }
#pragma unroll
    for (unsigned c = 0; c < 2; c++) {
        for (int mask = 4; mask < WARP; mask <<= 1) above[c] = fmaxf(above[c], shfl_xor(above[c], mask));
        if (group == 0) most[warp * PAIRS_AT_ONCE + 2 * lane + c] = above[c];
    }
    barrier();
    float sum[2] = {0, 0};
    for (unsigned c = 0; c < 2; c++)
        for (unsigned w = 0; w < 4; w++) above[c] = fmaxf(above[c], most[w * PAIRS_AT_ONCE + 2 * lane + c]);
#pragma unroll
    for (unsigned i = 0; i < KEYS; i++) {
        if (64 * i >= end) break;
#pragma unroll
        for (unsigned c = 0; c < 2; c++) {
            float one = exp2f(scores[i][c] - above[c]), other = exp2f(scores[i][2 + c] - above[c]);
            sum[c] += one + other;
            reinterpret_cast<unsigned*>(weights + (2 * lane + c) * WEIGHT_STRIDE + 64 * i + 16 * warp)[group] = pack_bf16(one, other);
        }
    }
#pragma unroll
    for (unsigned c = 0; c < 2; c++) {
        for (int mask = 4; mask < WARP; mask <<= 1) sum[c] += shfl_xor(sum[c], mask);
        if (group == 0) total[warp * PAIRS_AT_ONCE + 2 * lane + c] = sum[c];
    }
    barrier();

    // A quarter of a value's numbers is a warp's; in its rows they come two by two as halves of a register.
    unsigned own = E / 4 * warp + E / 32 * group;
    const char* values = keys + (d.key_heads * E + own) * sizeof(bf16);
    Fragment out[E / 64];
    clear<E / 64>(out);
#pragma unroll 2
    for (unsigned base = 0; base < end; base += 32) {
        Words<4> weight = *reinterpret_cast<const Words<4>*>(weights + group * WEIGHT_STRIDE + base + 8 * lane);
        Words<8> slot = *reinterpret_cast<const Words<8>*>(slots + base + 8 * lane);
        Words<E / 64> v[8];
#pragma unroll
        for (unsigned k = 0; k < 8; k++) v[k] = *reinterpret_cast<const Words<E / 64>*>(values + (uint64_t)slot.at[k] * slot_bytes);
#pragma unroll
        for (unsigned k = 0; k < 8; k += 4)
#pragma unroll
            for (unsigned m = 0; m < E / 64; m++) {
                unsigned x[4] = {low_halves(v[k].at[m], v[k + 1].at[m]), high_halves(v[k].at[m], v[k + 1].at[m]),
                                 low_halves(v[k + 2].at[m], v[k + 3].at[m]), high_halves(v[k + 2].at[m], v[k + 3].at[m])};
                mma_16816(out[m], x, weight.at + k / 2);
            }
    }
#pragma unroll
    for (unsigned c = 0; c < 2; c++) {
        if (first + 2 * lane + c >= pairs) continue;
        float* to = d.parts + d.place(first + 2 * lane + c) * (E + 2) + own;
#pragma unroll
        for (unsigned m = 0; m < E / 64; m++) to[2 * m] = out[m][c], to[2 * m + 1] = out[m][2 + c];
    }
    unsigned pair = threadIdx.x;
    if (pair < PAIRS_AT_ONCE && first + pair < pairs) {
        float level = most[pair], all = total[pair];
        for (unsigned w = 1; w < 4; w++) level = fmaxf(level, most[w * PAIRS_AT_ONCE + pair]), all += total[w * PAIRS_AT_ONCE + pair];
        float* to = d.parts + d.place(first + pair) * (E + 2) + E;
        to[0] = level, to[1] = all;
    }
}

/// A block per (item, head of keys) as in `decode_parts`, with (ITEM_KEYS + 4 * WEIGHT_STRIDE + 8 * 8 + 9 * (E + 4)) * 4 bytes of shared memory.
template <unsigned E, class Rows>
__device__ inline void decode_parts_mma(Items of, const Rows& rows, const bf16* cache, float* parts, unsigned heads, unsigned key_heads, float scale) {
    DecodeItem<bf16> d = of.item(cache, parts, heads, key_heads, E, scale);
    if (d.pairs() == 0) return;
    SHARED(unsigned, slots);
    unsigned tokens = 0;
#pragma unroll 1
    for (unsigned range = d.item.x; range < d.item.y; range++) {
        unsigned from = d.ranges[2 * range], count = d.ranges[2 * range + 1] - from;
        for (unsigned i = threadIdx.x; i < count; i += blockDim.x) slots[tokens + i] = from + i;
        tokens += count;
    }
    // Beyond the item, some key, which gets no weight.
    if (tokens + threadIdx.x < padded(tokens)) slots[tokens + threadIdx.x] = d.ranges[2 * d.item.x];
    bool own_key = rows.end(d);
#pragma unroll 1
    for (unsigned p = 0; p < d.pairs(); p += PAIRS_AT_ONCE, own_key = false)
        if (d.any_seen(p, min(p + PAIRS_AT_ONCE, d.pairs()), tokens)) decode_eight_pairs<E>(d, rows, p, slots, tokens, own_key);
}
extern "C" __global__ __launch_bounds__(128, 4) void decode_parts_mma_bf16_64(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const bf16* q_norm, const bf16* k_norm, unsigned normed, float offset, float eps, const bf16* qkv, bf16* cache, float* parts, unsigned heads, unsigned key_heads, unsigned, float scale) {
    StepRows<bf16> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts_mma<64>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, scale);
}
extern "C" __global__ __launch_bounds__(128, 4) void decode_parts_mma_bf16_128(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const bf16* q_norm, const bf16* k_norm, unsigned normed, float offset, float eps, const bf16* qkv, bf16* cache, float* parts, unsigned heads, unsigned key_heads, unsigned, float scale) {
    StepRows<bf16> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts_mma<128>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, scale);
}
/// Attention of a pass in the bits of these.
extern "C" __global__ __launch_bounds__(128, 4) void attention_parts_mma_bf16_64(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const bf16* q, const bf16* kv, float* parts, unsigned heads, unsigned key_heads, unsigned, float scale) {
    PassRows<bf16> rows{q};
    decode_parts_mma<64>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, scale);
}
extern "C" __global__ __launch_bounds__(128, 4) void attention_parts_mma_bf16_128(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const bf16* q, const bf16* kv, float* parts, unsigned heads, unsigned key_heads, unsigned, float scale) {
    PassRows<bf16> rows{q};
    decode_parts_mma<128>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, scale);
}
