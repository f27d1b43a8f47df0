// Decoding: one query per row against a cache of keys and values. The work is cut into items (the rows that see a sequence of tokens x at most 256 of
// its tokens) at every 256th token, never by load or by place in the cache, so that a row's result doesn't depend on its batch; the parts of a
// row merge in the order of its ancestors.
//
// `cache`: [slots, 2, K, E]. `ranges`: (first slot, last slot). An item: (first range, last range, first row, last row). Ends are exclusive. Items without
// rows and rows without parts fill up the bucket of a step; the result of such a row is 0.

/// One warp per (row of the item, head): grid (items, heads), a warp for each row in turn. `parts`: [place, H, E + 2] = sum, maximum, total,
/// where `place[item] + row - first row` counts an item's rows.
template <class T>
__device__ inline void decode_parts(const uint4* items, const unsigned* place, const unsigned* ranges, const T* q, const T* cache, float* parts, unsigned heads,
                                    unsigned key_heads, unsigned size, float scale) {
    uint4 item = items[blockIdx.x];
    unsigned head = blockIdx.y, key_head = head / (heads / key_heads), lane = threadIdx.x % WARP, stride = 2 * key_heads * size;
    for (unsigned row = item.z + threadIdx.x / WARP; row < item.w; row += blockDim.x / WARP) {
        float own[HELD];
        hold(q + ((uint64_t)row * heads + head) * size, scale, own, size);
        OnlineSoftmax seen;
        seen.begin();
        for (unsigned range = item.x; range < item.y; range++)
            for (unsigned slot = ranges[2 * range]; slot < ranges[2 * range + 1]; slot++) {
                const T* k = cache + (uint64_t)slot * stride + (uint64_t)key_head * size;
                seen.add(warp_sum(dot_part(own, k, size)), 1.0f, k + (uint64_t)key_heads * size, size);
            }
        float* to = parts + ((uint64_t)(place[blockIdx.x] + row - item.z) * heads + head) * (size + 2);
        for (unsigned i = 0; i < HELD; i++) {
            unsigned e = lane + WARP * i;
            if (e < size) to[e] = seen.sum[i];
        }
        if (lane == 0) {
            to[size] = seen.most;
            to[size + 1] = seen.total;
        }
    }
}
extern "C" __global__ void decode_parts_f32(const uint4* items, const unsigned* place, const unsigned* ranges, const float* q, const float* cache, float* parts,
                                            unsigned heads, unsigned key_heads, unsigned size, float scale) {
    decode_parts(items, place, ranges, q, cache, parts, heads, key_heads, size, scale);
}
extern "C" __global__ void decode_parts_bf16(const uint4* items, const unsigned* place, const unsigned* ranges, const bf16* q, const bf16* cache, float* parts,
                                             unsigned heads, unsigned key_heads, unsigned size, float scale) {
    decode_parts(items, place, ranges, q, cache, parts, heads, key_heads, size, scale);
}

/// out of each (row, head) from its parts, one warp each: `row_parts[row_first[r] .. row_first[r + 1]]`, in this order.
template <class T>
__device__ inline void decode_merge(const unsigned* row_first, const unsigned* row_parts, const float* parts, T* out, unsigned heads, unsigned size,
                                    unsigned rows) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= rows * heads) return;
    unsigned row = index / heads, head = index % heads, first = row_first[row], last = row_first[row + 1];
    OnlineSoftmax seen;
    seen.begin();
    for (unsigned p = first; p < last; p++) {
        const float* part = parts + ((uint64_t)row_parts[p] * heads + head) * (size + 2);
        seen.add(part[size], part[size + 1], part, size);
    }
    for (unsigned i = 0; i < HELD; i++) {
        unsigned e = lane + WARP * i;
        if (e < size) put(out + (uint64_t)index * size + e, first < last ? seen.sum[i] / seen.total : 0.0f);
    }
}
extern "C" __global__ void decode_merge_f32(const unsigned* row_first, const unsigned* row_parts, const float* parts, float* out, unsigned heads,
                                            unsigned size, unsigned rows) {
    decode_merge(row_first, row_parts, parts, out, heads, size, rows);
}
extern "C" __global__ void decode_merge_bf16(const unsigned* row_first, const unsigned* row_parts, const float* parts, bf16* out, unsigned heads,
                                             unsigned size, unsigned rows) {
    decode_merge(row_first, row_parts, parts, out, heads, size, rows);
}
