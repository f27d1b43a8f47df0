// Values of the matrices of a frozen base that are stored in fewer bits. Products that no compiler joins with a sum, so that they are those of the CPU
// bit for bit; in bf16 they are then rounded.

/// A byte's two codes of NF4, the first in the upper half; `map` has the values of codes.
template <typename T>
__device__ inline void nf4_pair(const unsigned char* codes, const float* map, float scale, T* out, uint64_t i, uint64_t count) {
    unsigned byte = codes[i];
    put(out + 2 * i, times(map[byte >> 4], scale));
    if (2 * i + 1 < count) put(out + 2 * i + 1, times(map[byte & 15], scale));
}

/// Scales are codes of 8 bits, whose values follow those of NF4 in `maps`, for 64 numbers each; `nested` has a scale for 256 of them.
template <typename T>
__device__ inline void nf4_values(const unsigned char* codes, const unsigned char* scales, const float* nested, float offset, const float* maps, T* out,
                                  uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i >= count) return;
    float scale = times(maps[16 + scales[i / 32]], nested[i / 8192]) + offset;
    nf4_pair(codes, maps, scale, out, i, count);
}
extern "C" __global__ void nf4_values_f32(const unsigned char* codes, const unsigned char* scales, const float* nested, float offset, const float* maps,
                                          float* out, uint64_t count) {
    nf4_values(codes, scales, nested, offset, maps, out, count);
}
extern "C" __global__ void nf4_values_bf16(const unsigned char* codes, const unsigned char* scales, const float* nested, float offset, const float* maps,
                                           bf16* out, uint64_t count) {
    nf4_values(codes, scales, nested, offset, maps, out, count);
}

/// Scales in f32.
template <typename T>
__device__ inline void nf4_plain_values(const unsigned char* codes, const float* scales, const float* maps, T* out, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i < count) nf4_pair(codes, maps, scales[i / 32], out, i, count);
}
extern "C" __global__ void nf4_plain_values_f32(const unsigned char* codes, const float* scales, const float* maps, float* out, uint64_t count) {
    nf4_plain_values(codes, scales, maps, out, count);
}
extern "C" __global__ void nf4_plain_values_bf16(const unsigned char* codes, const float* scales, const float* maps, bf16* out, uint64_t count) {
    nf4_plain_values(codes, scales, maps, out, count);
}

/// Rows of `columns` integers, with a scale each, of which `step` (1 / 127) makes the distance of two codes.
template <typename T>
__device__ inline void int8_values(const signed char* codes, const float* absmax, float step, T* out, uint32_t columns, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) put(out + i, times(times((float)codes[i], absmax[i / columns]), step));
}
extern "C" __global__ void int8_values_f32(const signed char* codes, const float* absmax, float step, float* out, uint32_t columns, uint64_t count) {
    int8_values(codes, absmax, step, out, columns, count);
}
extern "C" __global__ void int8_values_bf16(const signed char* codes, const float* absmax, float step, bf16* out, uint32_t columns, uint64_t count) {
    int8_values(codes, absmax, step, out, columns, count);
}

/// Numbers of 16 bits in f32.
extern "C" __global__ void widen(const bf16* x, float* out, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = to_float(x[i]);
}
