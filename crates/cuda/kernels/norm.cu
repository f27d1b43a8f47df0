// RMSNorm of rows and of heads, forward and backward.

// Rows are read and written by 16 bytes if their width is a multiple of that; else number by number, in the same order.

template <class T, bool WHOLE>
__device__ inline void rms_norm_again_by(const T* x, const T* weight, float offset, float s, T* y, unsigned width) {
    const unsigned N = Line<T>::N;
    for (unsigned i = threadIdx.x * N; i < width; i += blockDim.x * N) {
        Packed<T, N> v = load<T, N, WHOLE>(x, i, width), w = load<T, N, WHOLE>(weight, i, width);
#pragma unroll
        for (unsigned j = 0; j < N; j++) v.put(j, v.at(j) * s * (offset + w.at(j)));
        store<T, N, WHOLE>(y, i, width, v);
    }
}
template <class T, bool WHOLE>
__device__ inline void rms_norm_by(const T* x, const T* weight, float offset, float eps, T* y, float* scale, unsigned width) {
    SHARED(float, scratch);
    const unsigned N = Line<T>::N;
    uint64_t at = (uint64_t)blockIdx.x * width;
    float squares = 0;
    for (unsigned i = threadIdx.x * N; i < width; i += blockDim.x * N) {
        Packed<T, N> v = load<T, N, WHOLE>(x + at, i, width);
#pragma unroll
        for (unsigned j = 0; j < N; j++) squares += v.at(j) * v.at(j);
    }
    float s = 1.0f / sqrtf(block_sum(squares, scratch) / width + eps);
    if (threadIdx.x == 0) scale[blockIdx.x] = s;
    rms_norm_again_by<T, WHOLE>(x + at, weight, offset, s, y + at, width);
}
template <class T>
__device__ inline void rms_norm(const T* x, const T* weight, float offset, float eps, T* y, float* scale, unsigned width) {
    if (width % Line<T>::N == 0)
        rms_norm_by<T, true>(x, weight, offset, eps, y, scale, width);
    else
        rms_norm_by<T, false>(x, weight, offset, eps, y, scale, width);
}
/// y = x / rms(x) * weight; scale keeps 1 / rms. One block per row.
extern "C" __global__ void rms_norm_f32(const float* x, const float* weight, float offset, float eps, float* y, float* scale, unsigned width) {
    rms_norm(x, weight, offset, eps, y, scale, width);
}
extern "C" __global__ void rms_norm_bf16(const bf16* x, const bf16* weight, float offset, float eps, bf16* y, float* scale, unsigned width) {
    rms_norm(x, weight, offset, eps, y, scale, width);
}

template <class T>
__device__ inline void rms_norm_again(const T* x, const T* weight, float offset, const float* scale, T* y, unsigned width) {
    uint64_t at = (uint64_t)blockIdx.x * width;
    if (width % Line<T>::N == 0)
        rms_norm_again_by<T, true>(x + at, weight, offset, scale[blockIdx.x], y + at, width);
    else
        rms_norm_again_by<T, false>(x + at, weight, offset, scale[blockIdx.x], y + at, width);
}
/// y again, from the scale that the forward pass kept.
extern "C" __global__ void rms_norm_again_f32(const float* x, const float* weight, float offset, const float* scale, float* y, unsigned width) {
    rms_norm_again(x, weight, offset, scale, y, width);
}
extern "C" __global__ void rms_norm_again_bf16(const bf16* x, const bf16* weight, float offset, const float* scale, bf16* y, unsigned width) {
    rms_norm_again(x, weight, offset, scale, y, width);
}

template <class T, bool WHOLE>
__device__ inline void rms_norm_backward_by(const T* x, const T* weight, float offset, float s, const T* dy, T* dx, unsigned width) {
    SHARED(float, scratch);
    const unsigned N = Line<T>::N;
    float dot = 0;
    for (unsigned i = threadIdx.x * N; i < width; i += blockDim.x * N) {
        Packed<T, N> v = load<T, N, WHOLE>(x, i, width), w = load<T, N, WHOLE>(weight, i, width), d = load<T, N, WHOLE>(dy, i, width);
#pragma unroll
        for (unsigned j = 0; j < N; j++) dot += d.at(j) * (offset + w.at(j)) * v.at(j);
    }
    dot = block_sum(dot, scratch) * s * s * s / width;
    for (unsigned i = threadIdx.x * N; i < width; i += blockDim.x * N) {
        Packed<T, N> v = load<T, N, WHOLE>(x, i, width), w = load<T, N, WHOLE>(weight, i, width), d = load<T, N, WHOLE>(dy, i, width),
                     sum = load<T, N, WHOLE>(dx, i, width);
#pragma unroll
        for (unsigned j = 0; j < N; j++) sum.put(j, sum.at(j) + d.at(j) * (offset + w.at(j)) * s - v.at(j) * dot);
        store<T, N, WHOLE>(dx, i, width, sum);
    }
}
template <class T>
__device__ inline void rms_norm_backward(const T* x, const T* weight, float offset, const float* scale, const T* dy, T* dx, unsigned width) {
    uint64_t at = (uint64_t)blockIdx.x * width;
    if (width % Line<T>::N == 0)
        rms_norm_backward_by<T, true>(x + at, weight, offset, scale[blockIdx.x], dy + at, dx + at, width);
    else
        rms_norm_backward_by<T, false>(x + at, weight, offset, scale[blockIdx.x], dy + at, dx + at, width);
}
/// dx += the derivative by x.
extern "C" __global__ void rms_norm_backward_f32(const float* x, const float* weight, float offset, const float* scale, const float* dy, float* dx,
                                                 unsigned width) {
    rms_norm_backward(x, weight, offset, scale, dy, dx, width);
}
extern "C" __global__ void rms_norm_backward_bf16(const bf16* x, const bf16* weight, float offset, const float* scale, const bf16* dy, bf16* dx,
                                                  unsigned width) {
    rms_norm_backward(x, weight, offset, scale, dy, dx, width);
}

template <class T>
__device__ inline void rms_norm_weight(const T* x, const float* scale, const T* dy, float* partial, unsigned rows, unsigned width,
                                       unsigned rows_per_block) {
    auto term = [=](unsigned r, unsigned c) { return to_float(dy[(uint64_t)r * width + c]) * to_float(x[(uint64_t)r * width + c]) * scale[r]; };
    sum_columns(term, partial, rows, width, rows_per_block);
}
/// Sums of the columns of dy x scale, the weight's derivative, before add_partials.
extern "C" __global__ void rms_norm_weight_f32(const float* x, const float* scale, const float* dy, float* partial, unsigned rows,
                                               unsigned width, unsigned rows_per_block) {
    rms_norm_weight(x, scale, dy, partial, rows, width, rows_per_block);
}
extern "C" __global__ void rms_norm_weight_bf16(const bf16* x, const float* scale, const bf16* dy, float* partial, unsigned rows,
                                                unsigned width, unsigned rows_per_block) {
    rms_norm_weight(x, scale, dy, partial, rows, width, rows_per_block);
}

/// RMSNorm of each head in place, one warp per (row, head). `raw` keeps what was there, packed; `scale` 1 / rms.
template <class T>
__device__ inline void head_norm(const T* weight, float offset, float eps, T* x, T* raw, float* scale, unsigned heads, unsigned stride, unsigned size,
                                 unsigned count) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= count) return;
    T* at = x + (uint64_t)(index / heads) * stride + (uint64_t)(index % heads) * size;
    T* keep = raw + (uint64_t)index * size;
    float s = head_scale(at, eps, size);
    for (unsigned i = lane; i < size; i += WARP) keep[i] = at[i];
    if (lane == 0) scale[index] = s;
    for (unsigned i = lane; i < size; i += WARP) put(at + i, to_float(keep[i]) * s * (offset + to_float(weight[i])));
}
extern "C" __global__ void head_norm_f32(const float* weight, float offset, float eps, float* x, float* raw, float* scale, unsigned heads, unsigned stride,
                                         unsigned size, unsigned count) {
    head_norm(weight, offset, eps, x, raw, scale, heads, stride, size, count);
}
extern "C" __global__ void head_norm_bf16(const bf16* weight, float offset, float eps, bf16* x, bf16* raw, float* scale, unsigned heads, unsigned stride,
                                          unsigned size, unsigned count) {
    head_norm(weight, offset, eps, x, raw, scale, heads, stride, size, count);
}

/// In place: dx from the derivative of the result to that of raw. `share` keeps each head's part of the weight's derivative, packed.
template <class T>
__device__ inline void head_norm_backward(const T* weight, float offset, const T* raw, const float* scale, T* dx, float* share, unsigned heads,
                                          unsigned stride, unsigned size, unsigned count) {
    unsigned index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= count) return;
    T* at = dx + (uint64_t)(index / heads) * stride + (uint64_t)(index % heads) * size;
    const T* x = raw + (uint64_t)index * size;
    float s = scale[index], dot = 0;
    for (unsigned i = lane; i < size; i += WARP) {
        float dy = to_float(at[i]);
        dot += dy * (offset + to_float(weight[i])) * to_float(x[i]);
        share[(uint64_t)index * size + i] = dy * to_float(x[i]) * s;
    }
    dot = warp_sum(dot) * s * s * s / size;
    for (unsigned i = lane; i < size; i += WARP) put(at + i, to_float(at[i]) * (offset + to_float(weight[i])) * s - to_float(x[i]) * dot);
}
extern "C" __global__ void head_norm_backward_f32(const float* weight, float offset, const float* raw, const float* scale, float* dx, float* share,
                                                  unsigned heads, unsigned stride, unsigned size, unsigned count) {
    head_norm_backward(weight, offset, raw, scale, dx, share, heads, stride, size, count);
}
extern "C" __global__ void head_norm_backward_bf16(const bf16* weight, float offset, const bf16* raw, const float* scale, bf16* dx, float* share,
                                                   unsigned heads, unsigned stride, unsigned size, unsigned count) {
    head_norm_backward(weight, offset, raw, scale, dx, share, heads, stride, size, count);
}
