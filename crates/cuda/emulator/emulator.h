// Runs the kernels on the CPU: one block at a time, one fiber per thread. Slow and strict.
//
// Checks: that all lanes of a warp run the same operation, that all threads reach a barrier, that addresses are inside of an allocation (guard pages) and
// inside of shared memory, that 16-byte accesses are aligned, that asynchronous copies are waited for before they are read, and that results don't depend
// on the order of threads (which is shuffled with a seed).
// Not checked: memory ordering, the exact rounding of tensor cores, bank conflicts, occupancy, speed.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#define EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct uint4 {
    unsigned x, y, z, w;
};

namespace emulator {

enum State { READY, AT_BARRIER, IN_WARP, DONE };

/// Operands of a lane in a warp operation, and the destination of its result.
struct Request {
    uint64_t in[4];
    const void* from;
    void* out;
    int operation;
    int argument;
};

struct Fiber {
    void* stack_pointer;
    uint3 thread;
    State state;
    int line;
    Request request;
    /// Asynchronous copies, which are performed when they are waited for.
    std::vector<std::pair<void*, const void*>> copies;
    std::vector<size_t> groups;
};

extern thread_local Fiber* now;
extern thread_local uint3 block, block_dim, grid_dim;
extern thread_local char* shared;
extern thread_local size_t shared_bytes;

void yield();
[[noreturn]] void fail(const char* what, int line);
typedef void (*WarpOperation)(Fiber* lanes, unsigned live, int argument);
/// Waits until every live lane of the warp requests the same operation. The last lane performs it for all.
void collective(int operation, WarpOperation f, int argument, int line);
void check_shared(const void* p, size_t bytes, const char* what, int line);

}  // namespace emulator

#define threadIdx (emulator::now->thread)
#define blockIdx (emulator::block)
#define blockDim (emulator::block_dim)
#define gridDim (emulator::grid_dim)
#define SHARED(type, name) type* name = reinterpret_cast<type*>(emulator::shared)

inline float bits_to_float(unsigned u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
inline unsigned float_to_bits(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
/// Rounds to nearest even as PTX does; every NaN becomes the same bit pattern.
inline unsigned pack_bf16(float low, float high) {
    auto round = [](float v) {
        unsigned u = float_to_bits(v);
        return v != v ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    };
    return round(low) | round(high) << 16;
}
inline unsigned low_halves(unsigned a, unsigned b) { return (a & 0xffffu) | b << 16; }
inline unsigned high_halves(unsigned a, unsigned b) { return a >> 16 | (b & 0xffff0000u); }
inline float times(float a, float b) {
    volatile float product = a * b;
    return product;
}
inline unsigned shared_add(unsigned* at, unsigned v) {
    unsigned before = *at;
    *at += v;
    return before;
}
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

inline void barrier_(int line) {
    emulator::now->state = emulator::AT_BARRIER;
    emulator::now->line = line;
    emulator::yield();
}
#define barrier() barrier_(__LINE__)

inline unsigned shfl_xor_bits_(unsigned v, int mask, int line) {
    unsigned out = 0;
    auto& r = emulator::now->request;
    r.in[0] = v;
    r.out = &out;
    emulator::collective(
        1,
        [](emulator::Fiber* lanes, unsigned live, int mask) {
            for (int i = 0; i < 32; i++) {
                if (!(live >> i & 1)) continue;
                if (!(live >> (i ^ mask) & 1)) emulator::fail("a shuffle reads a lane that has left", lanes[i].line);
                *static_cast<unsigned*>(lanes[i].request.out) = unsigned(lanes[i ^ mask].request.in[0]);
            }
        },
        mask, line);
    return out;
}
#define shfl_xor(v, mask) bits_to_float(shfl_xor_bits_(float_to_bits(v), mask, __LINE__))
#define shfl_xor_u32(v, mask) shfl_xor_bits_(v, mask, __LINE__)

/// Loads four 8 x 8 matrices of 16-bit values. Lane i passes the address of row i % 8 of matrix i / 8.
inline void ldmatrix_x4_(unsigned* to, const void* from, int line) {
    if (reinterpret_cast<uintptr_t>(from) & 15) emulator::fail("ldmatrix: address not a multiple of 16", line);
    emulator::check_shared(from, 16, "ldmatrix", line);
    auto& r = emulator::now->request;
    r.from = from;
    r.out = to;
    emulator::collective(
        2,
        [](emulator::Fiber* lanes, unsigned live, int) {
            if (live != ~0u) emulator::fail("ldmatrix without all 32 lanes", lanes[0].line);
            for (int i = 0; i < 32; i++)
                for (int m = 0; m < 4; m++)
                    memcpy(static_cast<unsigned*>(lanes[i].request.out) + m,
                           static_cast<const char*>(lanes[8 * m + i / 4].request.from) + 4 * (i % 4), 4);
        },
        0, line);
}
#define ldmatrix_x4(to, from) ldmatrix_x4_(to, from, __LINE__)

inline void ldmatrix_x4_transposed_(unsigned* to, const void* from, int line) {
    if (reinterpret_cast<uintptr_t>(from) & 15) emulator::fail("ldmatrix: address not a multiple of 16", line);
    emulator::check_shared(from, 16, "ldmatrix", line);
    auto& r = emulator::now->request;
    r.from = from;
    r.out = to;
    emulator::collective(
        3,
        [](emulator::Fiber* lanes, unsigned live, int) {
            if (live != ~0u) emulator::fail("ldmatrix without all 32 lanes", lanes[0].line);
            for (int i = 0; i < 32; i++)
                for (int m = 0; m < 4; m++)
                    for (int half = 0; half < 2; half++)
                        memcpy(reinterpret_cast<char*>(static_cast<unsigned*>(lanes[i].request.out) + m) + 2 * half,
                               static_cast<const char*>(lanes[8 * m + 2 * (i % 4) + half].request.from) + 2 * (i / 4), 2);
        },
        0, line);
}
#define ldmatrix_x4_transposed(to, from) ldmatrix_x4_transposed_(to, from, __LINE__)

/// d += a b in bf16 with f32 sums, for a 16 x 16 and b 16 x 8, in PTX's fragment layout.
inline void mma_16816_(float* d, const unsigned* a, const unsigned* b, int line) {
    auto& r = emulator::now->request;
    r.in[0] = a[0] | uint64_t(a[1]) << 32;
    r.in[1] = a[2] | uint64_t(a[3]) << 32;
    r.in[2] = b[0] | uint64_t(b[1]) << 32;
    r.out = d;
    emulator::collective(
        4,
        [](emulator::Fiber* lanes, unsigned live, int) {
            if (live != ~0u) emulator::fail("mma without all 32 lanes", lanes[0].line);
            float a[16][16], b[16][8];
            auto half = [](uint64_t v, int i) { return bits_to_float(unsigned(v >> (16 * i) & 0xffff) << 16); };
            for (int i = 0; i < 32; i++) {
                int group = i / 4, t = i % 4;
                auto& in = lanes[i].request.in;
                for (int e = 0; e < 8; e++) a[group + 8 * (e / 2 % 2)][2 * t + e % 2 + 8 * (e / 4)] = half(in[e / 4], e % 4);
                for (int e = 0; e < 4; e++) b[2 * t + e % 2 + 8 * (e / 2)][group] = half(in[2], e);
            }
            for (int i = 0; i < 32; i++) {
                int group = i / 4, t = i % 4;
                float* d = static_cast<float*>(lanes[i].request.out);
                for (int e = 0; e < 4; e++) {
                    float sum = 0;
                    int row = group + 8 * (e / 2), column = 2 * t + e % 2;
                    for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
                    d[e] += sum;
                }
            }
        },
        0, line);
}
#define mma_16816(d, a, b) mma_16816_(d, a, b, __LINE__)

/// Copies when waited for. Until then, the destination holds NaN, to reveal reads without a wait, and late reads of the previous content.
inline void cp_async16_(void* to, const void* from, int line) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & 15)
        emulator::fail("cp.async: address not a multiple of 16", line);
    emulator::check_shared(to, 16, "cp.async", line);
    memset(to, 0xff, 16);
    emulator::now->copies.emplace_back(to, from);
}
#define cp_async16(to, from) cp_async16_(to, from, __LINE__)
inline void cp_async_commit() { emulator::now->groups.push_back(emulator::now->copies.size()); }
template <int PENDING>
inline void cp_async_wait() {
    auto& fiber = *emulator::now;
    if (fiber.groups.size() <= size_t(PENDING)) return;
    size_t upto = fiber.groups[fiber.groups.size() - 1 - PENDING];
    for (size_t i = 0; i < upto; i++) memcpy(fiber.copies[i].first, fiber.copies[i].second, 16);
    fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + upto);
    std::vector<size_t> rest(fiber.groups.end() - PENDING, fiber.groups.end());
    for (auto& end : rest) end -= upto;
    fiber.groups = rest;
}
