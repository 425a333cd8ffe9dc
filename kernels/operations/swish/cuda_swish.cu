// Two loads of 16 bytes a thread, the activation in float32, and two stores.
// @kernel("swish", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0))
// @launch(grid=ceil_div(rows * cols * itemsize, 256 * 2 * 16), block=256)
// @call("swish<T>", x, out, long(rows * cols))

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int THREADS = 256, TURNS = 2;

template <typename T> struct alignas(16) Packet {
    static constexpr int WIDTH = 16 / sizeof(T);
    T value[WIDTH];
};

__device__ float activation(float x) {
    float power;  // exp(-x); 0 below 2^-126, where expf would spend more instructions
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    return __fdividef(x, 1 + power);  // 0 where the divisor is above 2^126
}

template <typename T>
__global__ void __launch_bounds__(THREADS) swish(const T* __restrict__ x, T* __restrict__ out, long long count) {
    using P = Packet<T>;
    const long long first = (long long)blockIdx.x * THREADS * TURNS + threadIdx.x;  // packet
    P packet[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const long long at = first + turn * THREADS;
        if ((at + 1) * P::WIDTH <= count) packet[turn] = reinterpret_cast<const P*>(x)[at];
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const long long at = first + turn * THREADS;
        if ((at + 1) * P::WIDTH <= count) {
            for (int i = 0; i < P::WIDTH; ++i) packet[turn].value[i] = T(activation(float(packet[turn].value[i])));
            reinterpret_cast<P*>(out)[at] = packet[turn];
        } else {  // the last packet is not whole
            for (long long i = at * P::WIDTH; i < count; ++i) out[i] = T(activation(float(x[i])));
        }
    }
}
