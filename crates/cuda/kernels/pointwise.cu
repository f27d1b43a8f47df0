// Rotary embedding, a thread per pair; sums and multiples, a thread per number; gated activations, a thread per 16 bytes of their result.

/// Rotates pairs (i, i + rotary / 2) of the first `rotary` numbers of each head in place by the row's position; sign -1 rotates back.
/// `table`: cosines of a position's rotary / 2 angles, then their sines.
template <class T>
__device__ inline void rotate(const float* table, const unsigned* positions, T* x, unsigned heads, unsigned stride, unsigned size, unsigned rotary, float sign,
                              unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x, half = rotary / 2;
    if (index >= count) return;
    unsigned pair = index % half, head = index / half % heads, row = index / half / heads;
    const float* angles = table + (uint64_t)positions[row] * rotary;
    float c = angles[pair], s = angles[half + pair] * sign;
    T* at = x + (uint64_t)row * stride + (uint64_t)head * size + pair;
    float low = to_float(at[0]), high = to_float(at[half]);
    rotate_pair(low, high, c, s);
    put(at, low);
    put(at + half, high);
}
extern "C" __global__ void rotate_f32(const float* table, const unsigned* positions, float* x, unsigned heads, unsigned stride, unsigned size,
                                      unsigned rotary, float sign, unsigned count) {
    rotate(table, positions, x, heads, stride, size, rotary, sign, count);
}
extern "C" __global__ void rotate_bf16(const float* table, const unsigned* positions, bf16* x, unsigned heads, unsigned stride, unsigned size,
                                       unsigned rotary, float sign, unsigned count) {
    rotate(table, positions, x, heads, stride, size, rotary, sign, count);
}

template <class T>
__device__ inline void add(const T* x, T* y, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) put(y + index, to_float(y[index]) + to_float(x[index]));
}
/// y += x.
extern "C" __global__ void add_f32(const float* x, float* y, unsigned count) { add(x, y, count); }
extern "C" __global__ void add_bf16(const bf16* x, bf16* y, unsigned count) { add(x, y, count); }

template <class T>
__device__ inline void scale(T* y, float factor, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) put(y + index, to_float(y[index]) * factor);
}
/// y *= factor.
extern "C" __global__ void scale_f32(float* y, float factor, unsigned count) { scale(y, factor, count); }
extern "C" __global__ void scale_bf16(bf16* y, float factor, unsigned count) { scale(y, factor, count); }

/// An activation is g sigmoid(z) of a gate g: SiLU has z = g, GELU by its approximation with a tanh z = 2 sqrt(2 / pi) (g + 0.044715 g^3). `slope`: dz / dg.
struct Activation {
    float z, slope;

    __device__ inline Activation(float g, unsigned gelu) : z(g), slope(1.0f) {
        const float GELU = 1.5957691216057308f, GELU_CUBE = 0.044715f * GELU;
        if (gelu) z = g * (GELU + GELU_CUBE * g * g), slope = GELU + 3.0f * GELU_CUBE * g * g;
    }
};

/// A thread's numbers of `rows` rows of `width`: their row, and the first of them in it.
template <class T, class Body>
__device__ inline void lines(unsigned width, unsigned rows, Body body) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x, in_row = (width + Line<T>::N - 1) / Line<T>::N;
    if (index / in_row < rows) body((uint64_t)(index / in_row), index % in_row * Line<T>::N);
}

template <class T, bool WHOLE>
__device__ inline void gated_by(const T* gate_up, T* act, unsigned width, unsigned rows, unsigned gelu) {
    const unsigned N = Line<T>::N;
    lines<T>(width, rows, [=](uint64_t row, unsigned first) {
        const T* from = gate_up + row * 2 * width;
        Packed<T, N> gate = load<T, N, WHOLE>(from, first, width), up = load<T, N, WHOLE>(from + width, first, width);
#pragma unroll
        for (unsigned j = 0; j < N; j++) gate.put(j, gate.at(j) * sigmoid(Activation(gate.at(j), gelu).z) * up.at(j));
        store<T, N, WHOLE>(act + row * width, first, width, gate);
    });
}
/// act = activation(gate) up, SiLU or GELU; a row of gate_up holds the gate's `width` numbers, then up's.
template <class T>
__device__ inline void gated(const T* gate_up, T* act, unsigned width, unsigned rows, unsigned gelu) {
    if (width % Line<T>::N == 0)
        gated_by<T, true>(gate_up, act, width, rows, gelu);
    else
        gated_by<T, false>(gate_up, act, width, rows, gelu);
}
extern "C" __global__ void gated_f32(const float* gate_up, float* act, unsigned width, unsigned rows, unsigned gelu) { gated(gate_up, act, width, rows, gelu); }
extern "C" __global__ void gated_bf16(const bf16* gate_up, bf16* act, unsigned width, unsigned rows, unsigned gelu) { gated(gate_up, act, width, rows, gelu); }

template <class T, bool WHOLE>
__device__ inline void gated_backward_by(T* gate_up, T* dact, unsigned width, unsigned rows, unsigned gelu) {
    const unsigned N = Line<T>::N;
    lines<T>(width, rows, [=](uint64_t row, unsigned first) {
        T* own = gate_up + row * 2 * width;
        Packed<T, N> gate = load<T, N, WHOLE>(own, first, width), up = load<T, N, WHOLE>(own + width, first, width),
                     act = load<T, N, WHOLE>(dact + row * width, first, width);
#pragma unroll
        for (unsigned j = 0; j < N; j++) {
            Activation of(gate.at(j), gelu);
            float u = up.at(j), d = act.at(j), s = sigmoid(of.z), active = gate.at(j) * s;
            gate.put(j, d * u * (s + active * of.slope * (1.0f - s)));
            up.put(j, d * active);
            act.put(j, active * u);
        }
        store<T, N, WHOLE>(own, first, width, gate);
        store<T, N, WHOLE>(own + width, first, width, up);
        store<T, N, WHOLE>(dact + row * width, first, width, act);
    });
}
/// In place: gate_up becomes its own derivative, dact becomes act again.
template <class T>
__device__ inline void gated_backward(T* gate_up, T* dact, unsigned width, unsigned rows, unsigned gelu) {
    if (width % Line<T>::N == 0)
        gated_backward_by<T, true>(gate_up, dact, width, rows, gelu);
    else
        gated_backward_by<T, false>(gate_up, dact, width, rows, gelu);
}
extern "C" __global__ void gated_backward_f32(float* gate_up, float* dact, unsigned width, unsigned rows, unsigned gelu) { gated_backward(gate_up, dact, width, rows, gelu); }
extern "C" __global__ void gated_backward_bf16(bf16* gate_up, bf16* dact, unsigned width, unsigned rows, unsigned gelu) { gated_backward(gate_up, dact, width, rows, gelu); }
