// backends/cuda/kernels/quantized_conv.cu -- convolution of 8-bit integers, exact in 32 bits, then
// scale, bias, relu and saturation: with a thread for each element of the result.

struct Conv {
    i64 x_strides[5];  // n, c, depth, height, width
    i32 in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
    i32 channels, group_out;  // channels of a group: inputs, outputs
    i32 out_channels, scales, rectifies;
};

__device__ __forceinline__ void store(float value, float* to) { *to = value; }
__device__ __forceinline__ float clamped(float value, float low, float high) {
    value = value < high ? value : high;
    return rintf(value > low ? value : low);
}
__device__ __forceinline__ void store(float value, i8* to) { *to = (i8)clamped(value, -128, 127); }
__device__ __forceinline__ void store(float value, u8* to) { *to = (u8)clamped(value, 0, 255); }

// Takes four channels at a time where they lie side by side (FOURS): those of x always do; those of
// the weights where there is one tap.
__device__ __forceinline__ i32 channels_of(const Conv& p, const X* pixel, const i8* weights, i32 taps, i32 sum) {
    if (FOURS) {
        for (i32 c = 0; c < p.channels; c += 4) {
            u32 of_w = 0;
            if (taps == 1) {
                of_w = *(const u32*)(weights + c);
            } else {
#pragma unroll
                for (i32 e = 0; e < 4; ++e) of_w |= (u32)(u8)weights[(c + e) * taps] << 8 * e;
            }
            sum = (i32)dot4(*(const u32*)(pixel + c), of_w, (u32)sum, X(), i8());
        }
    } else {
        for (i32 c = 0; c < p.channels; ++c) sum += (i32)pixel[c * p.x_strides[1]] * (i32)weights[c * taps];
    }
    return sum;
}

// `i` counts the elements of y in the order of memory: CHANNELS_LAST or not.
extern "C" __global__ void quantized_conv(Conv p, INDEX count, const X* x, const i8* w, const float* scale,
                                          const float* bias, Y* y) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        INDEX rest = i;
        i32 oc = 0, at[3];
        if (CHANNELS_LAST) {
            rest = i / (u32)p.out_channels;
            oc = (i32)(i - rest * (u32)p.out_channels);
        }
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const INDEX above = rest / (u32)p.out[axis];
            at[axis] = (i32)(rest - above * (u32)p.out[axis]) * p.stride[axis] - p.padding[axis];
            rest = above;
        }
        if (!CHANNELS_LAST) {
            const INDEX n = rest / (u32)p.out_channels;
            oc = (i32)(rest - n * (u32)p.out_channels);
            rest = n;
        }
        const X* const from = x + (i64)rest * p.x_strides[0] + (i64)(oc / p.group_out * p.channels) * p.x_strides[1];
        const i32 taps = p.kernel[0] * p.kernel[1] * p.kernel[2];
        const i8* const weights = w + (i64)oc * p.channels * taps;
        i32 sum = 0, tap = 0;
        for (i32 kd = 0; kd < p.kernel[0]; ++kd)
            for (i32 kh = 0; kh < p.kernel[1]; ++kh)
                for (i32 kw = 0; kw < p.kernel[2]; ++kw, ++tap) {
                    const i32 d = at[0] + kd * p.dilation[0], h = at[1] + kh * p.dilation[1],
                              v = at[2] + kw * p.dilation[2];
                    if ((u32)d >= (u32)p.in[0] || (u32)h >= (u32)p.in[1] || (u32)v >= (u32)p.in[2]) continue;
                    const X* const pixel = from + d * p.x_strides[2] + h * p.x_strides[3] + v * p.x_strides[4];
                    sum = channels_of(p, pixel, weights + tap, taps, sum);
                }
        float value = (float)sum * scale[p.scales > 1 ? oc : 0] + bias[oc];
        if (p.rectifies) value = value > 0 ? value : 0;
        store(value, y + i);
    }
}
