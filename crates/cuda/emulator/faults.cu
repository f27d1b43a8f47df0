// Kernels with planted mistakes for the emulator's own tests. They are not shipped.

/// Reads a neighbour's value without a barrier.
extern "C" __global__ void fault_missing_barrier(float* out) {
    SHARED(float, numbers);
    numbers[threadIdx.x] = (float)threadIdx.x;
    out[threadIdx.x] = numbers[(threadIdx.x + 33) % blockDim.x];
}
/// Reads a copy's destination before waiting for the copy, where another value was.
extern "C" __global__ void fault_missing_wait(const float* in, float* out) {
    SHARED(float, numbers);
    numbers[4 * threadIdx.x] = 1.0f;
    cp_async16(numbers + 4 * threadIdx.x, in + 4 * threadIdx.x);
    cp_async_commit();
    out[threadIdx.x] = numbers[4 * threadIdx.x];
    cp_async_wait<0>();
}
/// Half of the threads never reach the barrier.
extern "C" __global__ void fault_divergent_barrier(float* out) {
    if (threadIdx.x < blockDim.x / 2) return;
    barrier();
    out[threadIdx.x] = 1.0f;
}
/// Lanes of a warp shuffle in different instructions.
extern "C" __global__ void fault_divergent_shuffle(float* out) {
    float v = (float)threadIdx.x;
    if (threadIdx.x % 2)
        v = shfl_xor(v, 1);
    else
        v = shfl_xor(v, 2);
    out[threadIdx.x] = v;
}
/// Copies to an address beyond the shared memory.
extern "C" __global__ void fault_shared_overrun(const float* in) {
    SHARED(float, numbers);
    cp_async16(numbers + 4 * (threadIdx.x + 1), in);
    cp_async_commit();
    cp_async_wait<0>();
}
