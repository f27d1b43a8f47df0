// A search for numbers that are not finite, for debugging.

/// partial[b] = the least index of a number that is not finite among those of the block, or `count`: shared memory for one index per thread.
template <class T>
__device__ inline void first_non_finite(const T* x, uint64_t* partial, uint64_t count) {
    SHARED(uint64_t, least);
    uint64_t found = count;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count && found == count; i += (uint64_t)gridDim.x * blockDim.x)
        if ((float_to_bits(to_float(x[i])) & 0x7f800000u) == 0x7f800000u) found = i;
    least[threadIdx.x] = found;
    barrier();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && least[threadIdx.x + half] < least[threadIdx.x]) least[threadIdx.x] = least[threadIdx.x + half];
        barrier();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = least[0];
}
extern "C" __global__ void first_non_finite_f32(const float* x, uint64_t* partial, uint64_t count) { first_non_finite(x, partial, count); }
extern "C" __global__ void first_non_finite_bf16(const bf16* x, uint64_t* partial, uint64_t count) { first_non_finite(x, partial, count); }
