// What every kernel uses. No includes: NVRTC compiles these files for GPUs, the host's compiler compiles them against the emulator.
//
// Rules of the house: only the wrappers below for what a warp does together; dynamic shared memory alone, through SHARED; no atomics
// but on integers in shared memory, so that a result repeats bit for bit; 64-bit offsets into memory.
#ifndef EMULATED
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
extern __shared__ __align__(128) char raw_shared[];
#define SHARED(type, name) type* name = reinterpret_cast<type*>(raw_shared)
#define barrier() __syncthreads()
#define shfl_xor(v, mask) __shfl_xor_sync(0xffffffffu, (float)(v), (mask))
#define shfl_xor_u32(v, mask) __shfl_xor_sync(0xffffffffu, (unsigned)(v), (mask))
__device__ inline unsigned float_to_bits(float f) { return __float_as_uint(f); }
__device__ inline float bits_to_float(unsigned u) { return __uint_as_float(u); }
/// Two neighbours, rounded to bf16, in one register, the first in the low half.
__device__ inline unsigned pack_bf16(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
/// The low halves of two registers, and the high ones, `a`'s below `b`'s.
__device__ inline unsigned low_halves(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ inline unsigned high_halves(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }
/// A product that no compiler joins with a sum.
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
/// Adds to a word of shared memory and returns what was there. For integers alone, whose sums don't depend on the order.
__device__ inline unsigned shared_add(unsigned* at, unsigned v) { return atomicAdd(at, v); }
__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ inline void ldmatrix_x4(unsigned* to, const void* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(from)));
}
__device__ inline void ldmatrix_x4_transposed(unsigned* to, const void* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(from)));
}
__device__ inline void mma_16816(float* d, const unsigned* a, const unsigned* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void cp_async16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;"); }
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
}
#endif

#define WARP 32
#define MINUS_INFINITY (-3.0e38f)

/// A number of 16 bits with f32's exponent. Conversions round to nearest, ties to even, on every device.
struct bf16 {
    unsigned short bits;
};
__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(bf16 v) { return bits_to_float((unsigned)v.bits << 16); }
__device__ inline unsigned round_bf16(float v) { return pack_bf16(v, 0.0f); }
__device__ inline void put(float* at, float v) { *at = v; }
__device__ inline void put(bf16* at, float v) { at->bits = (unsigned short)round_bf16(v); }
/// The number that a T holds of it.
template <class T>
__device__ inline float rounded(float v) {
    T at;
    put(&at, v);
    return to_float(at);
}

/// N numbers as they lie in memory, two to a register where they have 16 bits.
template <class T, unsigned N>
struct Packed;
template <unsigned N>
struct Packed<float, N> {
    enum { WORDS = N };
    unsigned words[WORDS];
    __device__ inline float at(unsigned i) const { return bits_to_float(words[i]); }
    /// Numbers are set in their order.
    __device__ inline void set(unsigned i, float v) { words[i] = float_to_bits(v); }
    __device__ inline void put(unsigned i, float v) { set(i, v); }
    __device__ inline float get(unsigned i) const { return at(i); }
};
template <unsigned N>
struct Packed<bf16, N> {
    enum { WORDS = N / 2 };
    unsigned words[WORDS];
    __device__ inline float at(unsigned i) const { return bits_to_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16); }
    __device__ inline void set(unsigned i, bf16 v) { words[i / 2] = i % 2 ? words[i / 2] | (unsigned)v.bits << 16 : v.bits; }
    __device__ inline void set(unsigned i, float) { words[i / 2] = i % 2 ? words[i / 2] : 0; }
    /// One number, rounded; the others stay.
    __device__ inline void put(unsigned i, float v) {
        words[i / 2] = i % 2 ? (words[i / 2] & 0xffffu) | round_bf16(v) << 16 : (words[i / 2] & 0xffff0000u) | round_bf16(v);
    }
    __device__ inline bf16 get(unsigned i) const { return bf16{(unsigned short)(words[i / 2] >> (i % 2 ? 16 : 0))}; }
};

/// Numbers `first .. first + N` of a row, zeros beyond its `size`; by 16 bytes where `WHOLE` says that the size is a multiple of N.
template <class T, unsigned N, bool WHOLE>
__device__ inline Packed<T, N> load(const T* row, unsigned first, unsigned size) {
    Packed<T, N> got;
    if (WHOLE) {
        const uint4* from = reinterpret_cast<const uint4*>(row + first);
#pragma unroll
        for (unsigned i = 0; i < got.WORDS / 4; i++) {
            uint4 four = first < size ? from[i] : uint4{0, 0, 0, 0};
            got.words[4 * i] = four.x, got.words[4 * i + 1] = four.y, got.words[4 * i + 2] = four.z, got.words[4 * i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            if (first + i < size)
                got.set(i, row[first + i]);
            else
                got.set(i, 0.0f);
    }
    return got;
}
/// Writes them to numbers `first .. first + N` of a row, as far as it goes.
template <class T, unsigned N, bool WHOLE>
__device__ inline void store(T* row, unsigned first, unsigned size, const Packed<T, N>& v) {
    if (WHOLE) {
        uint4* to = reinterpret_cast<uint4*>(row + first);
#pragma unroll
        for (unsigned i = 0; i < v.WORDS / 4; i++)
            if (first < size) to[i] = uint4{v.words[4 * i], v.words[4 * i + 1], v.words[4 * i + 2], v.words[4 * i + 3]};
    } else {
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            if (first + i < size) row[first + i] = v.get(i);
    }
}
/// The numbers in 16 bytes.
template <class T>
struct Line {
    enum { N = 16 / sizeof(T) };
};

__device__ inline float warp_sum(float v) {
    for (int mask = 16; mask > 0; mask >>= 1) v += shfl_xor(v, mask);
    return v;
}
__device__ inline float warp_max(float v) {
    for (int mask = 16; mask > 0; mask >>= 1) v = fmaxf(v, shfl_xor(v, mask));
    return v;
}

__device__ inline float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

/// 1 / rms of a head's numbers, over the lanes of a warp. It, and the rotation below, are spelled out, so that a head has the same bits in every kernel.
template <class T>
__device__ inline float head_scale(const T* head, float eps, unsigned size) {
    float squares = 0;
    for (unsigned e = threadIdx.x % WARP; e < size; e += WARP) squares = fmaf(to_float(head[e]), to_float(head[e]), squares);
    return 1.0f / sqrtf(warp_sum(squares) / size + eps);
}
/// A pair of a head's numbers, rotated by an angle of this cosine and sine.
__device__ inline void rotate_pair(float& low, float& high, float c, float s) {
    float before = low;
    low = fmaf(low, c, -times(high, s));
    high = fmaf(high, c, times(before, s));
}

/// Sum over the block, in a fixed order; every thread gets it. `scratch`: one number per warp.
__device__ inline float block_sum(float v, float* scratch) {
    v = warp_sum(v);
    barrier();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = v;
    barrier();
    float total = 0;
    for (unsigned w = 0; w < (blockDim.x + WARP - 1) / WARP; w++) total += scratch[w];
    return total;
}
__device__ inline float block_max(float v, float* scratch) {
    v = warp_max(v);
    barrier();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = v;
    barrier();
    float most = MINUS_INFINITY;
    for (unsigned w = 0; w < (blockDim.x + WARP - 1) / WARP; w++) most = fmaxf(most, scratch[w]);
    return most;
}

/// partial[b][c] = sum over the block's rows of term(r, c): grid (columns / 32, blocks of rows), 32 x 8 threads.
template <class Term>
__device__ inline void sum_columns(Term term, float* partial, unsigned rows, unsigned width, unsigned rows_per_block) {
    SHARED(float, sums);
    unsigned column = blockIdx.x * WARP + threadIdx.x % WARP, lane = threadIdx.x / WARP;
    unsigned first = blockIdx.y * rows_per_block, last = min(rows, first + rows_per_block);
    float sum = 0;
    if (column < width)
        for (unsigned r = first + lane; r < last; r += 8) sum += term(r, column);
    sums[threadIdx.x] = sum;
    barrier();
    if (lane == 0 && column < width) {
        for (unsigned w = 1; w < 8; w++) sum += sums[w * WARP + threadIdx.x];
        partial[(uint64_t)blockIdx.y * width + column] = sum;
    }
}
