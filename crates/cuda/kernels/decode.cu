// Decoding: one query per row against a cache of keys and values, which the row's own join. The work is cut into items (at most 256 tokens x the rows that see
// them) at every 256th token of a path, never by load, by sequence or by place in the cache, so that a row's result doesn't depend on its batch; the parts of a
// row merge in the order of its path. Passes can be cut likewise, and are then computed in the same bits.
//
// A row of `qkv` has H queries, K keys and K values as the linear maps make them; the norm of heads and the rotary embedding follow here, in the bits of the
// kernels that do them one by one. The block whose item ends with a row's own slot stores its key and value there. Other blocks that
// read them see them in a second launch.
//
// `cache`: [slots, 2, K, E]. `ranges`: (first slot, last slot). An item: (first range, last range, first row, last row). Ends are exclusive. Items without
// rows and rows without parts fill up the bucket of a step; the result of such a row is 0. `starts`: the position of each item's first token. With a window,
// a row has no parts of items before it.

/// Lanes that share a key: each holds N numbers of a head, from N * lane on.
#define KEY_LANES 8
/// Keys that a block of 128 threads works on side by side.
#define KEYS_AT_ONCE 16
#define LOG2_E 1.4426950408889634f
/// Tokens of an item, but for the last of a path.
#define ITEM_KEYS 256

/// What a head of a row becomes before attention: `to` has its numbers, rounded to T. One warp works on a head; all of a block call it, with no head where
/// there is none left.
template <class T>
__device__ inline void place_head(const T* raw, const T* norm, bool normed, float offset, float eps, const float* angles, unsigned rotary, float* to,
                                  unsigned size) {
    unsigned lane = threadIdx.x % WARP, half = rotary / 2;
    if (raw != nullptr) {
        float s = head_scale(raw, eps, size);
        for (unsigned e = lane; e < size; e += WARP) {
            float v = to_float(raw[e]);
            to[e] = normed ? rounded<T>(v * s * (offset + to_float(norm[e]))) : v;
        }
    }
    barrier();
    if (raw != nullptr) {
        for (unsigned pair = lane; pair < half; pair += WARP) {
            float low = to[pair], high = to[half + pair];
            rotate_pair(low, high, angles[pair], angles[half + pair]);
            to[pair] = rounded<T>(low);
            to[half + pair] = rounded<T>(high);
        }
    }
}

/// An item of one head of keys.
template <class T>
struct DecodeItem {
    uint4 item;
    const unsigned* ranges;
    const T* cache;
    float* parts;
    unsigned heads, key_heads, size, key_head;
    float scale;
    /// Of rows, and of the item's first token.
    const unsigned* positions;
    unsigned start, window;

    /// The numbers of a slot.
    __device__ inline unsigned slot_width() const { return 2 * key_heads * size; }
    __device__ inline unsigned pairs() const { return (item.w - item.z) * (heads / key_heads); }
    /// The place of pair `p` of the item's rows and the query heads of its key head, among [rows, H].
    __device__ inline uint64_t place(unsigned p) const {
        unsigned group = heads / key_heads;
        return (uint64_t)(p / group) * heads + key_head * group + p % group;
    }
    /// The row of that pair.
    __device__ inline unsigned row(unsigned p) const { return item.z + p / (heads / key_heads); }
    /// Which of the item's `tokens` a pair sees: those up to its row, from where its window begins.
    __device__ inline Keys seen(unsigned pair, unsigned tokens) const {
        unsigned end = positions[row(pair)] + 1 - start, first = end > window ? end - window : 0;
        end = min(tokens, end);
        return Keys{first, end > first ? end - first : 0};
    }
    /// Whether any of these pairs sees a token of the item.
    __device__ inline bool any_seen(unsigned pair, unsigned last, unsigned tokens) const {
        while (pair < last && seen(pair, tokens).count == 0) pair++;
        return pair < last;
    }
};

/// The items of a step or of a pass.
struct Items {
    const uint4* items;
    const unsigned *place, *ranges, *positions, *starts;
    unsigned window;

    /// A block's.
    template <class T>
    __device__ inline DecodeItem<T> item(const T* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) const {
        parts += (uint64_t)place[blockIdx.x] * heads * (size + 2);
        return DecodeItem<T>{items[blockIdx.x], ranges, cache, parts, heads, key_heads, size, blockIdx.y, scale, positions, starts[blockIdx.x], window};
    }
};

/// A decoding step's rows before attention: their positions and slots, the weights of the norms, the projections; and where their keys and values go.
template <class T>
struct StepRows {
    const unsigned *positions, *slots;
    const float* angles;
    unsigned rotary;
    const T *q_norm, *k_norm;
    unsigned normed;
    float offset, eps;
    const T* qkv;
    T* cache;

    /// Whether the item ends with the slot of its only row, whose key and value are not stored yet.
    __device__ inline bool end(const DecodeItem<T>& d) const {
        return d.item.w - d.item.z == 1 && d.ranges[2 * d.item.y - 1] - 1 == slots[d.item.z];
    }
    /// The query of each pair that exists for all threads of the block, in `queries`, `stride` numbers apart; `own_key`: the key and value that are not stored
    /// yet, in their slot.
    template <unsigned PAIRS>
    __device__ inline void place(const DecodeItem<T>& d, unsigned first, bool own_key, float* queries, unsigned stride) const {
        unsigned size = d.size;
#pragma unroll 1
        for (unsigned round = 0; round <= PAIRS / 4; round++) {
            unsigned index = 4 * round + threadIdx.x / WARP;
            bool query = index < PAIRS && first + index < d.pairs(), key = index == PAIRS && own_key;
            unsigned r = query ? d.row(first + index) : d.item.z;
            const T* row = qkv + (uint64_t)r * (d.heads * size + d.slot_width());
            const T* keys = row + d.heads * size + d.key_head * size;
            const T* raw = query ? row + d.place(first + index) % d.heads * size : key ? keys : nullptr;
            float* head = queries + index * stride;
            place_head(raw, query ? q_norm : k_norm, normed != 0, offset, eps, angles + (uint64_t)positions[r] * rotary, rotary, head, size);
            if (!key) continue;
            T* to = cache + (uint64_t)slots[r] * d.slot_width() + d.key_head * size;
            // A lane has rotated the pairs that it reads.
#pragma unroll 1
            for (unsigned pair = threadIdx.x % WARP; pair < rotary / 2; pair += WARP) {
                put(to + pair, head[pair]);
                put(to + rotary / 2 + pair, head[rotary / 2 + pair]);
            }
#pragma unroll 1
            for (unsigned e = rotary + threadIdx.x % WARP; e < size; e += WARP) put(to + e, head[e]);
#pragma unroll 1
            for (unsigned e = threadIdx.x % WARP; e < size; e += WARP) to[d.key_heads * size + e] = keys[d.key_heads * size + e];
        }
    }
};

/// A pass's rows: queries that are normed and rotated, as the keys are.
template <class T>
struct PassRows {
    const T* q;

    __device__ inline bool end(const DecodeItem<T>&) const { return false; }
    template <unsigned PAIRS>
    __device__ inline void place(const DecodeItem<T>& d, unsigned first, bool, float* queries, unsigned stride) const {
        for (unsigned index = threadIdx.x / WARP; index < PAIRS && first + index < d.pairs(); index += 4) {
            const T* head = q + ((uint64_t)d.item.z * d.heads + d.place(first + index)) * d.size;
            for (unsigned e = threadIdx.x % WARP; e < d.size; e += WARP) queries[index * stride + e] = to_float(head[e]);
        }
    }
};

/// `PAIRS` pairs of a row and a query head, from `first` on, against all keys of the item. Eight lanes hold a key; a unit of eight takes every 16th key by its
/// place in the item, `KEYS` at a time, and sums in base 2. Units merge in a fixed order. Products and sums are spelled out, so that a pair's result doesn't
/// depend on how many are computed side by side, nor on keys that it doesn't see.
template <class T, class Rows, unsigned N, bool WHOLE, unsigned KEYS, unsigned PAIRS>
__device__ inline void decode_pairs(const DecodeItem<T>& d, const Rows& rows, unsigned first, unsigned tokens, bool own_key) {
    unsigned lane = threadIdx.x % KEY_LANES * N, unit = threadIdx.x / KEY_LANES, size = d.size, stride = d.slot_width();
    SHARED(float, merged);
    // After the sums of the warps: a query per pair, and a key.
    float* heads = merged + 4 * PAIRS * (size + 2);
    rows.template place<PAIRS>(d, first, own_key, heads, size);
    barrier();
    Keys seen[PAIRS];
    float own[PAIRS][N], sum[PAIRS][N], most[PAIRS], total[PAIRS];
#pragma unroll
    for (unsigned p = 0; p < PAIRS; p++) {
        most[p] = MINUS_INFINITY;
        total[p] = 0;
        seen[p] = d.seen(first + p, tokens);
#pragma unroll
        for (unsigned i = 0; i < N; i++) own[p][i] = lane + i < size ? times(heads[p * size + lane + i], d.scale * LOG2_E) : 0.0f, sum[p][i] = 0;
    }
    // The range of the unit's key, from the one before the first, and how many keys lie before it.
    unsigned range = d.item.x - 1, before = 0, slot = 0, end = 0;
    for (unsigned start = unit; start < tokens + unit; start += KEYS_AT_ONCE * KEYS) {
        Packed<T, N> k[KEYS], v[KEYS];
#pragma unroll
        for (unsigned j = 0; j < KEYS; j++) {
            // Beyond the item, some key, which gets no weight.
            unsigned t = min(start + KEYS_AT_ONCE * j, tokens - 1);
            while (t - before >= end - slot) {
                before += end - slot;
                range++;
                slot = d.ranges[2 * range], end = d.ranges[2 * range + 1];
            }
            const T* at = d.cache + (uint64_t)(slot + t - before) * stride + (uint64_t)d.key_head * size;
            k[j] = load<T, N, WHOLE>(at, lane, size);
            v[j] = load<T, N, WHOLE>(at + (uint64_t)d.key_heads * size, lane, size);
        }
#pragma unroll
        for (unsigned p = 0; p < PAIRS; p++) {
            float score[KEYS], above = most[p];
#pragma unroll
            for (unsigned j = 0; j < KEYS; j++) {
                float dot = 0;
#pragma unroll
                for (unsigned i = 0; i < N; i++) dot = fmaf(own[p][i], k[j].at(i), dot);
                for (int mask = KEY_LANES / 2; mask > 0; mask >>= 1) dot += shfl_xor(dot, mask);
                score[j] = seen[p].has(start + KEYS_AT_ONCE * j) ? dot : MINUS_INFINITY;
                above = fmaxf(above, score[j]);
            }
            float keep = exp2f(most[p] - above);
            most[p] = above;
            total[p] = times(total[p], keep);
#pragma unroll
            for (unsigned i = 0; i < N; i++) sum[p][i] = times(sum[p][i], keep);
#pragma unroll
            for (unsigned j = 0; j < KEYS; j++) {
                float weight = seen[p].has(start + KEYS_AT_ONCE * j) ? exp2f(score[j] - above) : 0.0f;
                total[p] += weight;
#pragma unroll
                for (unsigned i = 0; i < N; i++) sum[p][i] = fmaf(weight, v[j].at(i), sum[p][i]);
            }
        }
    }
    // The units of a warp, then the warps: [4, PAIRS, E + 2].
    unsigned width = size + 2, warp = threadIdx.x / WARP;
#pragma unroll
    for (unsigned p = 0; p < PAIRS; p++) {
        for (int mask = KEY_LANES; mask < WARP; mask <<= 1) {
            float other = shfl_xor(most[p], mask), above = fmaxf(most[p], other);
            float keep = exp2f(most[p] - above), theirs = exp2f(other - above);
            most[p] = above;
            total[p] = fmaf(total[p], keep, times(shfl_xor(total[p], mask), theirs));
#pragma unroll
            for (unsigned i = 0; i < N; i++) sum[p][i] = fmaf(sum[p][i], keep, times(shfl_xor(sum[p][i], mask), theirs));
        }
        float* to = merged + (warp * PAIRS + p) * width;
        if (threadIdx.x % WARP < KEY_LANES) {
#pragma unroll
            for (unsigned i = 0; i < N; i++)
                if (lane + i < size) to[lane + i] = sum[p][i];
        }
        if (threadIdx.x % WARP == 0) to[size] = most[p], to[size + 1] = total[p];
    }
    barrier();
#pragma unroll 1
    for (unsigned index = threadIdx.x; index < PAIRS * (size + 1); index += blockDim.x) {
        unsigned p = index / (size + 1), e = index % (size + 1);
        float above = MINUS_INFINITY, all = 0;
        for (unsigned w = 0; w < 4; w++) above = fmaxf(above, merged[(w * PAIRS + p) * width + size]);
        for (unsigned w = 0; w < 4; w++) {
            const float* from = merged + (w * PAIRS + p) * width;
            all = fmaf(from[e < size ? e : size + 1], exp2f(from[size] - above), all);
        }
        float* to = d.parts + d.place(first + p) * width;
        to[e < size ? e : size + 1] = all;
        if (e == size) to[size] = above;
    }
    barrier();
}

/// A block per (item, head of keys): grid (items, key heads), 128 threads, 4 * 2 * (E + 2) + 3 * E numbers of shared memory. `parts`: [place, H, E + 2] = sum,
/// maximum, total, the maximum in base 2, where `place[item] + row - first row` counts an item's rows. Heads of up to 8 N numbers.
template <class T, class Rows, unsigned N, bool WHOLE, unsigned KEYS, unsigned PAIRS>
__device__ inline void decode_parts(Items of, const Rows& rows, const T* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size,
                                    float scale) {
    DecodeItem<T> d = of.item(cache, parts, heads, key_heads, size, scale);
    if (d.pairs() == 0) return;
    unsigned tokens = 0;
#pragma unroll 1
    for (unsigned range = d.item.x; range < d.item.y; range++) tokens += d.ranges[2 * range + 1] - d.ranges[2 * range];
    bool own_key = rows.end(d);
    unsigned p = 0, pairs = d.pairs();
#pragma unroll 1
    for (; p + PAIRS <= pairs; p += PAIRS, own_key = false)
        if (d.any_seen(p, p + PAIRS, tokens)) decode_pairs<T, Rows, N, WHOLE, KEYS, PAIRS>(d, rows, p, tokens, own_key);
#pragma unroll 1
    for (; p < pairs; p++, own_key = false)
        if (d.any_seen(p, p + 1, tokens)) decode_pairs<T, Rows, N, WHOLE, KEYS, 1>(d, rows, p, tokens, own_key);
}
extern "C" __global__ __launch_bounds__(128, 5) void decode_parts_8_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const float* q_norm, const float* k_norm, unsigned normed, float offset, float eps, const float* qkv, float* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<float> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<float, StepRows<float>, 8, true, 1, 2>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128) void decode_parts_16_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const float* q_norm, const float* k_norm, unsigned normed, float offset, float eps, const float* qkv, float* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<float> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<float, StepRows<float>, 16, true, 1, 2>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 2) void decode_parts_32_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const float* q_norm, const float* k_norm, unsigned normed, float offset, float eps, const float* qkv, float* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<float> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<float, StepRows<float>, 32, true, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
/// Heads of any size up to 256.
extern "C" __global__ __launch_bounds__(128, 2) void decode_parts_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const float* q_norm, const float* k_norm, unsigned normed, float offset, float eps, const float* qkv, float* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<float> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<float, StepRows<float>, 32, false, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 5) void decode_parts_8_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const bf16* q_norm, const bf16* k_norm, unsigned normed, float offset, float eps, const bf16* qkv, bf16* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<bf16> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<bf16, StepRows<bf16>, 8, true, 2, 2>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128) void decode_parts_16_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const bf16* q_norm, const bf16* k_norm, unsigned normed, float offset, float eps, const bf16* qkv, bf16* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<bf16> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<bf16, StepRows<bf16>, 16, true, 2, 2>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 2) void decode_parts_32_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const bf16* q_norm, const bf16* k_norm, unsigned normed, float offset, float eps, const bf16* qkv, bf16* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<bf16> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<bf16, StepRows<bf16>, 32, true, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}
/// Heads of any size up to 256.
extern "C" __global__ __launch_bounds__(128, 2) void decode_parts_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const unsigned* slots, const float* angles, unsigned rotary, const bf16* q_norm, const bf16* k_norm, unsigned normed, float offset, float eps, const bf16* qkv, bf16* cache, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    StepRows<bf16> rows{positions, slots, angles, rotary, q_norm, k_norm, normed, offset, eps, qkv, cache};
    decode_parts<bf16, StepRows<bf16>, 32, false, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, cache, parts, heads, key_heads, size, scale);
}

/// Attention of a pass in decoding's bits. `kv` is its cache: the slots are rows.
extern "C" __global__ __launch_bounds__(128, 5) void attention_parts_8_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const float* q, const float* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<float> rows{q};
    decode_parts<float, PassRows<float>, 8, true, 1, 2>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_parts_16_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const float* q, const float* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<float> rows{q};
    decode_parts<float, PassRows<float>, 16, true, 1, 2>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 2) void attention_parts_32_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const float* q, const float* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<float> rows{q};
    decode_parts<float, PassRows<float>, 32, true, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 2) void attention_parts_f32(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const float* q, const float* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<float> rows{q};
    decode_parts<float, PassRows<float>, 32, false, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 5) void attention_parts_8_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const bf16* q, const bf16* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<bf16> rows{q};
    decode_parts<bf16, PassRows<bf16>, 8, true, 2, 2>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128) void attention_parts_16_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const bf16* q, const bf16* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<bf16> rows{q};
    decode_parts<bf16, PassRows<bf16>, 16, true, 2, 2>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 2) void attention_parts_32_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const bf16* q, const bf16* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<bf16> rows{q};
    decode_parts<bf16, PassRows<bf16>, 32, true, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}
extern "C" __global__ __launch_bounds__(128, 2) void attention_parts_bf16(
    const uint4* items, const unsigned* place, const unsigned* ranges, const unsigned* positions, const unsigned* starts, unsigned window,
    const bf16* q, const bf16* kv, float* parts, unsigned heads, unsigned key_heads, unsigned size, float scale) {
    PassRows<bf16> rows{q};
    decode_parts<bf16, PassRows<bf16>, 32, false, 1, 1>(Items{items, place, ranges, positions, starts, window}, rows, kv, parts, heads, key_heads, size, scale);
}

/// out of each (row, head) from its parts, one warp each: `row_parts[row_first[r] .. row_first[r + 1]]`, in this order, but for those before its window. For a
/// pass also log Σ exp.
template <class T>
__device__ inline void decode_merge(const unsigned* row_first, const unsigned* row_parts, const unsigned* positions, unsigned window, const float* parts, T* out, float* lse, unsigned of_pass,
                                    unsigned heads, unsigned size, unsigned rows) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= rows * heads) return;
    unsigned row = index / heads, head = index % heads, first = row_first[row], last = row_first[row + 1], end = positions[row] + 1;
    if (end > window) first += (end - window) / ITEM_KEYS;
    float sum[HELD] = {}, most = MINUS_INFINITY, total = 0;
    for (unsigned p = first; p < last; p++) {
        const float* part = parts + ((uint64_t)row_parts[p] * heads + head) * (size + 2);
        float above = fmaxf(most, part[size]), keep = exp2f(most - above), weight = exp2f(part[size] - above);
        most = above;
        total = fmaf(total, keep, times(weight, part[size + 1]));
        for (unsigned i = 0; i < HELD; i++) {
            unsigned e = lane + WARP * i;
            if (e < size) sum[i] = fmaf(sum[i], keep, times(weight, part[e]));
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = lane + WARP * i;
        if (e < size) put(out + (uint64_t)index * size + e, first < last ? sum[i] / total : 0.0f);
    }
    if (of_pass && lane == 0) lse[index] = (most + log2f(total)) / LOG2_E;
}
extern "C" __global__ void decode_merge_f32(const unsigned* row_first, const unsigned* row_parts, const unsigned* positions, unsigned window, const float* parts, float* out, float* lse, unsigned of_pass,
                                            unsigned heads, unsigned size, unsigned rows) {
    decode_merge(row_first, row_parts, positions, window, parts, out, lse, of_pass, heads, size, rows);
}
extern "C" __global__ void decode_merge_bf16(const unsigned* row_first, const unsigned* row_parts, const unsigned* positions, unsigned window, const float* parts, bf16* out, float* lse, unsigned of_pass,
                                            unsigned heads, unsigned size, unsigned rows) {
    decode_merge(row_first, row_parts, positions, window, parts, out, lse, of_pass, heads, size, rows);
}
